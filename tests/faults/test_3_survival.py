"""3.1 to 3.16: a worker, its server and the link between them are killed, frozen, cut and starved."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.deployment import FAST, TERMINAL, Deployment, WorkerProgram, deployed
from tests.harness.processes import alive
from tests.harness.proxy import TO_SERVER, TO_WORKER, Proxy
from tests.harness.waiting import eventually
from tests.harness.witnesses import words


class Shop:
    """One server and one worker behind a link, for all tests of this module."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.link = Proxy(deployment.port)
        self.worker: WorkerProgram = deployment.worker("box", url=self.link.url, parallel=50)

    def whole(self) -> None:
        """The worker is there and idle, whatever the test before did to it."""
        self.link.bytes_per_s = None
        self.link.heal(reset=False)
        for run in self.deployment.items("/runs", limit=200):
            if run["state"] not in TERMINAL:
                self.deployment.post(f"/runs/{run['id']}/cancel")
        self.deployment.wait_for_worker("box", "online", within_s=40)

    def working(self, directory: Path) -> Work:
        """A run on the worker that has finished two of its three steps and waits for its gate."""
        work = Work(self.deployment, directory)
        eventually(lambda: words(work.witness)["step2"], what="two steps are done")
        eventually(
            lambda: len(self.deployment.items(f"/runs/{work.id}/tasks")) >= 2, what="both are recorded"
        )
        return work


class Work:
    """One such run."""

    def __init__(self, deployment: Deployment, directory: Path) -> None:
        self._deployment = deployment
        self.witness, self.gate = directory / "witness", directory / "gate"
        self.id = deployment.start_run("checkpointed_there", path=str(self.witness), gate=str(self.gate))

    def ends(self, attempts: int) -> None:
        """Open the gate: it ends well, no step of it was executed twice, and so many attempts were made."""
        self.gate.touch()
        assert self._deployment.wait_for_run(self.id, "completed")["result"] == [1, 2, 3]
        assert words(self.witness) == {"step1": 1, "step2": 1, "step3": 1}
        assert len(self._deployment.attempts(self.id)) == attempts


@pytest.fixture(scope="module")
def open_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """The shop, for the whole module."""
    with deployed(tmp_path_factory.mktemp("shop")) as deployment:
        shop = Shop(deployment)
        yield shop
        shop.link.close()


@pytest.fixture
def shop(open_shop: Shop) -> Shop:
    """The shop, in order."""
    open_shop.whole()
    return open_shop


# ------------------------------------------------------------ processes


@pytest.mark.fault("3.1")
def test_a_killed_engine_costs_its_run_an_attempt_and_nothing_that_was_done(
    shop: Shop, tmp_path: Path
) -> None:
    before = set(shop.worker.engines())
    work = shop.working(tmp_path)
    new = set(shop.worker.engines()) - before
    [engine] = new or shop.worker.engines()
    os.kill(engine, signal.SIGKILL)
    eventually(lambda: not alive(engine), what="it is gone")
    work.ends(attempts=2)


@pytest.mark.fault("3.2")
def test_a_killed_agent_costs_its_runs_an_attempt_and_nothing_that_was_done(
    shop: Shop, tmp_path: Path
) -> None:
    work = shop.working(tmp_path)
    shop.worker.kill()
    shop.worker.start()
    work.ends(attempts=2)


@pytest.mark.fault("3.3")
def test_a_killed_warden_costs_its_runs_an_attempt_and_the_agent_goes_on(shop: Shop, tmp_path: Path) -> None:
    work = shop.working(tmp_path)
    agent, engines = shop.worker.pid, shop.worker.engines()
    os.kill(shop.worker.warden, signal.SIGKILL)
    eventually(lambda: not any(map(alive, engines)), what="the engines end with it")
    work.ends(attempts=2)
    assert shop.worker.pid == agent
    assert alive(agent)


@pytest.mark.fault("3.4")
def test_a_worker_killed_with_all_its_processes_comes_back_and_goes_on(shop: Shop, tmp_path: Path) -> None:
    work = shop.working(tmp_path)
    engines = shop.worker.engines()
    for pid in (shop.worker.warden, *engines):
        os.kill(pid, signal.SIGKILL)
    shop.worker.kill()
    shop.worker.start()
    work.ends(attempts=2)


@pytest.mark.fault("3.5")
def test_a_server_that_is_away_for_1_10_and_60_s_costs_50_remote_jobs_nothing(
    shop: Shop, tmp_path: Path
) -> None:
    """The times are a tenth of what is named, like all times here."""
    witness, gate, deployment = tmp_path / "witness", tmp_path / "gate", shop.deployment
    runs = [deployment.start_run("waiting_there", path=str(witness), gate=str(gate)) for _ in range(50)]
    eventually(lambda: words(witness)["begin"] == 50, 120, "all of them run")
    for away_s in (0.1, 1, 6):
        deployment.server.kill()
        time.sleep(away_s)
        deployment.restart()
    gate.touch()
    for run in runs:
        deployment.wait_for_run(run, "completed", within_s=60)
        assert len(deployment.attempts(run)) == 1
    assert words(witness) == {"begin": 50, "end": 50}


@pytest.mark.fault("3.6")
def test_server_and_worker_killed_together_go_on_from_the_last_checkpoint(shop: Shop, tmp_path: Path) -> None:
    work = shop.working(tmp_path)
    shop.deployment.server.kill()
    shop.worker.kill()
    shop.worker.start()
    shop.deployment.restart()
    work.ends(attempts=2)


@pytest.mark.fault("3.7")
def test_a_server_killed_twice_in_a_row_costs_a_remote_run_nothing(shop: Shop, tmp_path: Path) -> None:
    work = shop.working(tmp_path)
    for _ in range(2):
        shop.deployment.server.kill()
        shop.deployment.restart()
    work.ends(attempts=1)


@pytest.mark.fault("3.8")
def test_a_thawed_agent_does_not_take_an_old_acknowledgement_for_a_new_one(
    shop: Shop, tmp_path: Path
) -> None:
    """B006: what was answered long ago says nothing of now."""
    work = shop.working(tmp_path)
    engines = shop.worker.engines()
    os.kill(shop.worker.pid, signal.SIGSTOP)
    try:
        eventually(lambda: not any(map(alive, engines)), FAST.lease_s * 3, "the warden ended the engines")
        time.sleep(FAST.lease_s * 2)
    finally:
        os.kill(shop.worker.pid, signal.SIGCONT)
    work.ends(attempts=2)


# ------------------------------------------------------------ links


@pytest.mark.fault("3.9")
@pytest.mark.fault("3.11")
def test_acknowledgements_that_come_too_late_keep_nothing_alive(shop: Shop, tmp_path: Path) -> None:
    work = shop.working(tmp_path)
    engines = shop.worker.engines()
    shop.link.cut(TO_WORKER)
    eventually(lambda: not any(map(alive, engines)), FAST.lease_s * 4, "the engines ended with the lease")
    shop.link.heal(reset=False)  # all that was answered arrives now
    work.ends(attempts=2)


@pytest.mark.fault("3.10")
def test_a_link_that_carries_nothing_to_the_server_ends_the_attempt_on_both_sides(
    shop: Shop, tmp_path: Path
) -> None:
    work = shop.working(tmp_path)
    engines = shop.worker.engines()
    shop.link.cut(TO_SERVER)
    eventually(lambda: shop.deployment.worker_state("box") in ("lost", "offline"), what="the server saw it")
    eventually(lambda: not any(map(alive, engines)), FAST.lease_s * 4, "the engines ended with the lease")
    shop.link.heal()
    work.ends(attempts=2)


@pytest.mark.fault("3.12")
def test_20_resets_in_one_run_lose_and_double_nothing(shop: Shop, tmp_path: Path) -> None:
    witness, deployment = tmp_path / "witness", shop.deployment
    run_id = deployment.start_run("ticking_there", path=str(witness), seconds=4)
    for number in range(20):
        eventually(lambda number=number: words(witness)[f"tick{2 * number + 2}"], what="it ticks on")
        shop.link.reset()
    run = deployment.wait_for_run(run_id, "completed")
    assert len(deployment.attempts(run_id)) == 1
    assert deployment.log_lines(run_id) == [f"tick {n}" for n in range(1, run["result"] + 1)]


@pytest.mark.fault("3.13")
def test_heartbeats_get_through_a_slow_link_that_is_full_of_reports(shop: Shop) -> None:
    """2 MB at 2 Mbit/s, which takes many leases of a tenth."""
    deployment = shop.deployment
    shop.link.bytes_per_s = 250_000
    run_id = deployment.start_run("printing_there", lines=2000, width=1000)
    deployment.wait_for_run(run_id, "completed", within_s=90)
    assert len(deployment.attempts(run_id)) == 1
    assert len(deployment.log_lines(run_id)) == 2000
    events = deployment.items("/events", limit=1000)
    lost = [
        e for e in events if e["kind"] == "worker.lost" and e["at"] > deployment.run(run_id)["created_at"]
    ]
    assert lost == []


@pytest.mark.fault("3.14")
def test_a_network_that_is_off_for_long_costs_what_was_under_way_alone(shop: Shop, tmp_path: Path) -> None:
    """Ten leases: the engine has ended, the run waits, and goes on when the worker is back."""
    work = shop.working(tmp_path)
    shop.link.cut()
    time.sleep(FAST.lease_s * 10)
    run = shop.deployment.run(work.id)
    assert run["state"] == "queued"
    shop.link.heal()
    work.ends(attempts=2)


# ------------------------------------------------------------ the job itself


@pytest.mark.fault("3.15")
@pytest.mark.fault("3.16")
@pytest.mark.parametrize(
    ("flow", "seconds"), [("starving_there", 5), ("holding_there", 5)], ids=["every core", "the lock"]
)
def test_a_job_that_takes_all_there_is_does_not_lose_its_worker(shop: Shop, flow: str, seconds: int) -> None:
    deployment = shop.deployment
    run_id = deployment.start_run(flow, seconds=seconds)
    run = deployment.wait_for_run(run_id, "completed")
    assert len(deployment.attempts(run_id)) == 1
    events = deployment.items("/events", limit=1000)
    assert not [e for e in events if e["kind"] == "worker.lost" and e["at"] > run["created_at"]]
