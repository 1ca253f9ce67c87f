"""3.1 to 3.4 and 3.8 to 3.16: a worker and its link are killed, frozen, cut and starved."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.deployment import FAST, deployed
from tests.harness.processes import alive, send, signal_all
from tests.harness.proxy import TO_SERVER, TO_WORKER, Proxy
from tests.harness.shop import Shop, Work
from tests.harness.waiting import eventually
from tests.harness.witnesses import words


@pytest.fixture(scope="module")
def link_and_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Proxy, Shop]]:
    """A worker behind a link, for the whole module."""
    with deployed(tmp_path_factory.mktemp("shop")) as deployment:
        link = Proxy(deployment.port, buffer_bytes=32 * 1024)
        yield link, Shop(deployment, link)
        link.close()


@pytest.fixture
def link(link_and_shop: tuple[Proxy, Shop]) -> Proxy:
    """Between the worker and its server."""
    return link_and_shop[0]


@pytest.fixture
def shop(link_and_shop: tuple[Proxy, Shop]) -> Shop:
    """The shop, in order."""
    link_and_shop[1].whole()
    return link_and_shop[1]


# ------------------------------------------------------------ processes


@pytest.mark.fault("3.1")
def test_a_killed_engine_costs_its_run_an_attempt_and_nothing_that_was_done(
    shop: Shop, tmp_path: Path
) -> None:
    before = set(shop.worker.engines())
    work = shop.working(tmp_path)
    new = set(shop.worker.engines()) - before
    [engine] = new or shop.worker.engines()
    send(engine, signal.SIGKILL)
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
    send(shop.worker.warden, signal.SIGKILL)
    eventually(lambda: not any(map(alive, engines)), what="the engines end with it")
    work.ends(attempts=2)
    assert shop.worker.pid == agent
    assert alive(agent)


@pytest.mark.fault("3.4")
def test_a_worker_killed_with_all_its_processes_comes_back_and_goes_on(shop: Shop, tmp_path: Path) -> None:
    work = shop.working(tmp_path)
    signal_all(
        [shop.worker.warden, *shop.worker.engines()], signal.SIGKILL
    )  # the first takes the others along
    shop.worker.kill()
    shop.worker.start()
    work.ends(attempts=2)


@pytest.mark.fault("3.54")
def test_a_killed_or_frozen_stem_costs_no_run_anything(shop: Shop, tmp_path: Path) -> None:
    work = shop.working(tmp_path)
    engines, stem = shop.worker.engines(), shop.worker.stem
    send(stem, signal.SIGSTOP)
    directory = tmp_path / "asked"
    directory.mkdir()
    asked = Work(shop.deployment, directory)  # its engine is asked of the stem, and comes without it
    send(stem, signal.SIGKILL)
    eventually(lambda: shop.worker.stem not in (0, stem), what="another takes its place")
    assert all(map(alive, engines))
    work.ends(attempts=1)
    asked.ends(attempts=1)


@pytest.mark.fault("3.8")
def test_a_thawed_agent_does_not_take_an_old_acknowledgement_for_a_new_one(
    shop: Shop, tmp_path: Path
) -> None:
    """B006: what was answered long ago says nothing of now."""
    work = shop.working(tmp_path)
    engines = shop.worker.engines()
    shop.worker.send(signal.SIGSTOP)
    try:
        eventually(lambda: not any(map(alive, engines)), FAST.lease_s * 3, "the warden ended the engines")
        time.sleep(FAST.lease_s * 2)
    finally:
        shop.worker.send(signal.SIGCONT)
    work.ends(attempts=2)


# ------------------------------------------------------------ links


@pytest.mark.fault("3.9")
@pytest.mark.fault("3.11")
def test_acknowledgements_that_come_too_late_keep_nothing_alive(
    shop: Shop, link: Proxy, tmp_path: Path
) -> None:
    work = shop.working(tmp_path)
    engines = shop.worker.engines()
    link.cut(TO_WORKER)
    eventually(lambda: not any(map(alive, engines)), FAST.lease_s * 4, "the engines ended with the lease")
    link.heal(reset=False)  # all that was answered arrives now
    work.ends(attempts=2)


@pytest.mark.fault("3.10")
def test_a_link_that_carries_nothing_to_the_server_ends_the_attempt_on_both_sides(
    shop: Shop, link: Proxy, tmp_path: Path
) -> None:
    work = shop.working(tmp_path)
    engines = shop.worker.engines()
    link.cut(TO_SERVER)
    eventually(lambda: shop.deployment.worker_state("box") in ("lost", "offline"), what="the server saw it")
    eventually(lambda: not any(map(alive, engines)), FAST.lease_s * 4, "the engines ended with the lease")
    link.heal()
    work.ends(attempts=2)


@pytest.mark.fault("3.12")
def test_20_resets_in_one_run_lose_and_double_nothing(shop: Shop, link: Proxy, tmp_path: Path) -> None:
    witness, deployment = tmp_path / "witness", shop.deployment
    run_id = deployment.start_run("ticking_there", path=str(witness), seconds=4)
    for number in range(20):
        eventually(lambda number=number: words(witness)[f"tick{2 * number + 2}"], what="it ticks on")
        link.reset()
    run = deployment.wait_for_run(run_id, "completed")
    assert len(deployment.attempts(run_id)) == 1
    assert deployment.log_lines(run_id) == [f"tick {n}" for n in range(1, run["result"] + 1)]


@pytest.mark.fault("3.13")
def test_heartbeats_get_through_a_slow_link_that_is_full_of_reports(shop: Shop, link: Proxy) -> None:
    """8 MB at 10 Mbit/s, which is 1 Mbit/s on a clockwork of a tenth."""
    link.bytes_per_s = 1_250_000
    try:
        _print_much(shop)
    finally:
        link.bytes_per_s = None


def _print_much(shop: Shop) -> None:
    deployment = shop.deployment
    run_id = deployment.start_run("printing_there", lines=8000, width=1000)
    deployment.wait_for_run(run_id, "completed", within_s=90)
    assert len(deployment.attempts(run_id)) == 1
    assert len(deployment.log_lines(run_id)) == 8000
    events = deployment.items("/events", limit=1000)
    lost = [
        e for e in events if e["kind"] == "worker.lost" and e["at"] > deployment.run(run_id)["created_at"]
    ]
    assert lost == []


@pytest.mark.fault("3.14")
def test_a_network_that_is_off_for_long_costs_what_was_under_way_alone(
    shop: Shop, link: Proxy, tmp_path: Path
) -> None:
    """Ten leases: the engine has ended, the run waits, and goes on when the worker is back."""
    work = shop.working(tmp_path)
    link.cut()
    time.sleep(FAST.lease_s * 10)
    run = shop.deployment.run(work.id)
    assert run["state"] == "queued"
    link.heal()
    work.ends(attempts=2)


# ------------------------------------------------------------ the job itself


@pytest.mark.fault("3.15")
@pytest.mark.fault("3.16")
@pytest.mark.parametrize(
    ("flow", "seconds"), [("starving_there", 5), ("holding_there", 5)], ids=["every core", "the lock"]
)
def test_a_job_that_takes_all_there_is_does_not_lose_its_worker(shop: Shop, flow: str, seconds: int) -> None:
    """B003: for more than three leases; the agent needs next to nothing, and gets it."""
    deployment = shop.deployment
    run_id = deployment.start_run(flow, seconds=seconds)
    run = deployment.wait_for_run(run_id, "completed")
    assert len(deployment.attempts(run_id)) == 1
    events = deployment.items("/events", limit=1000)
    assert not [e for e in events if e["kind"] == "worker.lost" and e["at"] > run["created_at"]]
