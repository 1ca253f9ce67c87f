"""3.26, 3.28 and 3.29: runs that wait for calls, on machines that are full of such runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.deployment import Deployment, deployed
from tests.harness.processes import descendants
from tests.harness.waiting import eventually
from tests.harness.witnesses import words


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A server with one slot of its own, and a worker called box with one GPU."""
    with deployed(tmp_path_factory.mktemp("narrow"), parallel=1) as deployment:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SLURM_GPUS_ON_NODE", "1")
            patch.setenv("CUDA_VISIBLE_DEVICES", "GPU-of-the-test")
            deployment.worker("box")
        yield deployment


@pytest.mark.fault("3.28")
@pytest.mark.parametrize("flow", ["in_its_own_slot", "awaiting_in_its_own_slot"])
def test_a_run_whose_calls_need_its_own_slot_gives_it_to_them(narrow: Deployment, flow: str) -> None:
    run = narrow.wait_for_run(narrow.start_run(flow, count=3), "completed")
    assert run["result"] == 103
    assert len(narrow.attempts(run["id"])) == 1


def test_a_call_is_told_the_cores_and_the_gpu_it_was_given(narrow: Deployment) -> None:
    run = narrow.wait_for_run(narrow.start_run("told_its_size"), "completed")
    assert run["result"] == ["2", "GPU-of-the-test"]


@pytest.mark.fault("3.28")
def test_a_call_for_the_gpu_that_its_own_run_holds_fails_at_once_and_says_so(narrow: Deployment) -> None:
    run = narrow.wait_for_run(narrow.start_run("holding_a_gpu"), "failed")
    assert run["error"]["type"] == "Unplaceable"
    assert "held by holding_a_gpu" in run["error"]["message"]


@pytest.mark.fault("3.29")
def test_many_blocked_runs_keep_few_engines_and_all_end(narrow: Deployment, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    runs = [narrow.start_run("waiting_for_a_machine", path=str(witness), number=n) for n in range(12)]
    eventually(lambda: witness.exists() and words(witness)["began"] >= 4, 60, "four runs have begun")
    eventually(lambda: "4 blocked" in narrow.run(runs[-1])["message"], 20, "the last run says why it waits")
    assert words(witness)["began"] == 4
    assert len(descendants(narrow.local_pid)) <= 1 + 4 + 2, "the warden, blocked engines, and a warm one"
    narrow.worker("latecomer", "late", parallel=4)
    for run_id in runs:
        narrow.wait_for_run(run_id, "completed", within_s=90)
    assert words(witness)["called"] == 12


@pytest.mark.fault("3.26")
def test_a_placed_call_is_executed_once_though_the_worker_of_its_run_is_killed(
    narrow: Deployment, tmp_path: Path
) -> None:
    witness, gate = tmp_path / "witness", tmp_path / "gate"
    narrow.worker("steady", "steady")
    frail = narrow.worker("frail", "frail")
    run_id = narrow.start_run("parent_of_a_long_call", path=str(witness), gate=str(gate))
    eventually(lambda: witness.exists() and words(witness)["called"] == 1, 30, "the call runs")
    frail.kill()
    frail.start()
    eventually(lambda: words(witness)["parent"] == 2, 30, "the run goes on in another attempt")
    gate.touch()
    run = narrow.wait_for_run(run_id, "completed")
    assert run["result"] == "done"
    assert words(witness)["called"] == 1
