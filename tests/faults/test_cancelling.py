"""1.9 and 1.11: a run is cancelled at every point of its life, and nothing of it stays."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.harness.deployment import FAST, Deployment
from tests.harness.processes import alive
from tests.harness.proxy import TO_WORKER, Proxy
from tests.harness.waiting import eventually
from tests.harness.witnesses import words


def _cancel(deployment: Deployment, run_id: str) -> str:
    return deployment.post(f"/runs/{run_id}/cancel")["state"]


@pytest.mark.fault("1.9")
def test_a_queued_run_is_cancelled_at_once(standing: Deployment, tmp_path: Path) -> None:
    run_id = standing.start_run("waiting_there", path=str(tmp_path / "w"), gate=str(tmp_path / "g"))
    assert _cancel(standing, run_id) == "cancelled"
    standing.worker("late")
    probe = standing.start_run("ticking_there", path=str(tmp_path / "probe"), seconds=0.01)
    standing.wait_for_run(probe, "completed")
    assert standing.run(run_id)["state"] == "cancelled"
    assert not (tmp_path / "w").exists(), "a cancelled run was run"


@pytest.mark.fault("1.9")
def test_a_run_is_cancelled_during_its_hand_off(standing: Deployment, tmp_path: Path) -> None:
    proxy = Proxy(standing.port)
    try:
        standing.worker("handed", url=proxy.url)
        proxy.swallow(TO_WORKER, lambda message: message["type"] == "assign")
        run_id = standing.start_run("waiting_there", path=str(tmp_path / "w"), gate=str(tmp_path / "g"))
        eventually(lambda: proxy.swallowed, what="the assign is on its way")
        assert _cancel(standing, run_id) in ("cancelling", "cancelled"), (
            "or the hand-off was given up by then"
        )
        standing.wait_for_run(run_id, "cancelled")
        assert not (tmp_path / "w").exists(), "a cancelled run was run"
    finally:
        proxy.close()


@pytest.mark.fault("1.9")
def test_a_running_run_is_cancelled_and_its_children_end(standing: Deployment, tmp_path: Path) -> None:
    """FAULTS B025, B034."""
    standing.worker("parent")
    witness, children = tmp_path / "witness", tmp_path / "children"
    run_id = standing.start_run(
        "parent_there", path=str(witness), children=str(children), gate=str(tmp_path / "gate")
    )
    eventually(lambda: children.exists() and children.read_text().strip(), what="the child has called setsid")
    assert _cancel(standing, run_id) == "cancelling"
    run = standing.wait_for_run(run_id, "cancelled", within_s=FAST.grace_s + 5)
    assert run["reason"] == "cancelled"
    eventually(lambda: not alive(int(children.read_text())), 2.0, "the child is gone")
    assert len(standing.attempts(run_id)) == 1


@pytest.mark.fault("1.9")
def test_a_run_that_ignores_everything_is_killed_after_the_grace(
    standing: Deployment, tmp_path: Path
) -> None:
    worker = standing.worker("ignored", parallel=1)
    witness = tmp_path / "witness"
    run_id = standing.start_run("deaf", path=str(witness))
    eventually(lambda: words(witness)["alive"] > 2, what="it runs")
    engines = worker.engines()
    _cancel(standing, run_id)
    standing.wait_for_run(run_id, "cancelled", within_s=FAST.grace_s + 5)
    assert words(witness)["asked"] >= 1, "it was never asked"
    assert not any(alive(pid) for pid in engines)
    probe = standing.start_run("ticking_there", path=str(tmp_path / "probe"), seconds=0.01)
    standing.wait_for_run(probe, "completed")


@pytest.mark.fault("1.9")
def test_a_run_whose_worker_is_lost_is_cancelled_when_the_lease_ends(
    standing: Deployment, tmp_path: Path
) -> None:
    """FAULTS B007: never a silent yes."""
    worker = standing.worker("frozen")
    witness = tmp_path / "witness"
    run_id = standing.start_run("ticking_there", path=str(witness), seconds=60)
    eventually(lambda: words(witness)["tick3"], what="the run ticks")
    worker.send(signal.SIGSTOP)
    standing.wait_for_worker("frozen", "lost")
    assert _cancel(standing, run_id) == "cancelling"
    standing.wait_for_run(run_id, "cancelled", within_s=FAST.lease_s + FAST.margin_s + 5)
    worker.send(signal.SIGCONT)
    standing.wait_for_worker("frozen", "online")
    assert standing.run(run_id)["state"] == "cancelled"
    assert words(witness)["begin"] == 1


@pytest.mark.fault("1.11")
def test_a_child_that_called_setsid_and_ignores_sigterm_ends_with_the_job(
    standing: Deployment, tmp_path: Path
) -> None:
    """FAULTS B025, B032, B035."""
    children = tmp_path / "children"
    run_id = standing.start_run("abandoning", children=str(children))
    assert standing.wait_for_run(run_id, "completed")["result"] == "done"
    assert not alive(int(children.read_text())), "the child outlived its job"
