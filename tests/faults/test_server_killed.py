"""1.1 and 1.2: the server dies by SIGKILL, and no work is lost, repeated or charged for."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.harness.deployment import FAST, Deployment, deployed
from tests.harness.waiting import eventually
from tests.harness.witnesses import words

RUNS = 200


@pytest.mark.fault("1.1")
def test_runs_complete_once_and_no_task_is_repeated_when_the_server_is_killed_three_times(
    tmp_path: Path,
) -> None:
    """FAULTS B021: a restarted server goes on with what is alive instead of starting it again."""
    with deployed(tmp_path, parallel=3) as deployment:
        long_witness = tmp_path / "long"
        long_run = deployment.start_run("ticking", path=str(long_witness), seconds=12, every=0.2)
        eventually(lambda: words(long_witness)["begin"], what="the long task has begun")
        witnesses = [tmp_path / f"run{number}" for number in range(RUNS)]
        runs = [
            deployment.start_run("three_steps", key=witness.name, path=str(witness)) for witness in witnesses
        ]
        for share in (0.1, 0.4, 0.7):
            eventually(lambda s=share: _begun(witnesses) >= s * RUNS, 60, "enough runs have begun")
            deployment.server.kill()
            deployment.restart()
        for run_id, witness in zip(runs, witnesses, strict=True):
            assert deployment.wait_for_run(run_id, "completed", within_s=60)["result"] == 6
            assert words(witness) == {"step1": 1, "step2": 1, "step3": 1}, "a finished task ran again"
        run = deployment.wait_for_run(long_run, "completed")
        assert words(long_witness)["begin"] == words(long_witness)["end"] == 1
        assert run["result"] == sum(n for word, n in words(long_witness).items() if word.startswith("tick"))
        assert len(deployment.attempts(long_run)) == 1


def _begun(witnesses: list[Path]) -> int:
    return sum(witness.exists() for witness in witnesses)


@pytest.mark.fault("1.2")
def test_runs_on_a_worker_ride_a_killed_server_out_and_lose_no_log_line(
    deployment: Deployment, tmp_path: Path
) -> None:
    worker = deployment.worker("box", parallel=4)
    witnesses = [tmp_path / f"run{number}" for number in range(4)]
    runs = [deployment.start_run("ticking_there", path=str(w), seconds=4, every=0.02) for w in witnesses]
    for witness in witnesses:
        eventually(lambda w=witness: words(w)["begin"], what="every run has begun")
    engines = set(worker.engines())
    deployment.server.kill()
    time.sleep(1.0)  # the outage itself: a tenth of ten seconds
    deployment.restart()
    for run_id, witness in zip(runs, witnesses, strict=True):
        run = deployment.wait_for_run(run_id, "completed")
        assert len(deployment.attempts(run_id)) == 1
        assert words(witness)["begin"] == 1
        assert deployment.log_lines(run_id) == [f"tick {n}" for n in range(1, run["result"] + 1)]
    assert engines <= set(worker.engines()), "an engine was replaced"


@pytest.mark.fault("1.2")
def test_an_attempt_that_outlived_its_lease_in_an_outage_says_that_it_did(
    deployment: Deployment, tmp_path: Path
) -> None:
    """The server is away for two leases: refused connections are evidence, and the attempt is marked."""
    deployment.worker("box")
    witness = tmp_path / "witness"
    run_id = deployment.start_run("ticking_there", path=str(witness), seconds=6)
    eventually(lambda: words(witness)["tick3"], what="the run ticks")
    deployment.server.kill()
    time.sleep(2 * FAST.lease_s)  # the outage itself
    deployment.restart()
    deployment.wait_for_run(run_id, "completed")
    (attempt,) = deployment.attempts(run_id)
    assert attempt["overlap_possible"]
    assert words(witness)["begin"] == 1


def test_a_killed_server_that_is_started_with_more_slots_has_them_while_its_processors_go_on(
    tmp_path: Path,
) -> None:
    with deployed(tmp_path, parallel=1) as deployment:
        first, second = tmp_path / "first", tmp_path / "second"
        deployment.start_run("ticking", path=str(first), seconds=30, every=0.2)
        eventually(lambda: words(first)["begin"], what="the first run has the only slot")
        pid = deployment.local_pid
        deployment.server.kill()
        arguments = deployment.server.arguments
        arguments[arguments.index("--parallel") + 1] = "2"
        deployment.restart()
        deployment.start_run("ticking", path=str(second), seconds=1, every=0.2)
        eventually(lambda: words(second)["begin"], what="the second run has a slot")
        assert words(first)["end"] == 0
        assert deployment.local_pid == pid
