"""1.3, 1.4, 1.5 and 1.13: the worker's own processes are killed or frozen, in every combination."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.harness.deployment import FAST, Deployment, WorkerProgram
from tests.harness.processes import alive, descendants, signal_all
from tests.harness.waiting import eventually
from tests.harness.witnesses import pids, read, words

TWO_LEASES_S = 2 * FAST.lease_s


def _run_with_a_stubborn_child(deployment: Deployment, tmp_path: Path) -> tuple[str, Path, Path, Path]:
    witness, children, gate = tmp_path / "witness", tmp_path / "children", tmp_path / "gate"
    run_id = deployment.start_run("parent_there", path=str(witness), children=str(children), gate=str(gate))
    eventually(lambda: children.exists() and children.read_text().strip(), what="the child has called setsid")
    return run_id, witness, children, gate


def _everything(worker: WorkerProgram, children: Path) -> list[int]:
    """The engines of a worker and all below them, and children that left their session."""
    below = [pid for engine in worker.engines() for pid in (engine, *descendants(engine))]
    return sorted({*below, *(int(line) for line in children.read_text().split())})


def _all_dead(processes: list[int]) -> bool:
    return not any(alive(pid) for pid in processes)


@pytest.mark.fault("1.3")
def test_engines_and_their_children_end_within_a_second_of_a_killed_agent(
    standing: Deployment, tmp_path: Path
) -> None:
    """FAULTS B001, B025, B027: nothing outlives the agent, and the run is not lost with it."""
    worker = standing.worker("killed")
    run_id, witness, children, gate = _run_with_a_stubborn_child(standing, tmp_path)
    processes = _everything(worker, children)
    worker.kill()
    eventually(lambda: _all_dead(processes), 1.0, "engines and children are gone")
    children.unlink()
    worker.start()
    gate.touch()
    run = standing.wait_for_run(run_id, "completed")
    assert run["id"] == run_id
    assert words(witness)["begin"] == len(standing.attempts(run_id)) == 2


@pytest.mark.fault("1.4")
def test_a_frozen_agents_engines_are_dead_before_the_rerun_starts(
    standing: Deployment, tmp_path: Path
) -> None:
    """FAULTS B006, B014, B016: of a machine that is cut off, nothing runs beside the rerun."""
    workers = {name: standing.worker(name) for name in ("first", "second")}
    witness, gate = tmp_path / "witness", tmp_path / "gate"
    run_id = _ticks_until(standing, witness, gate)
    name = standing.run(run_id)["worker"]
    workers[name].send(signal.SIGSTOP)
    thaw_at = time.monotonic() + TWO_LEASES_S
    eventually(lambda: words(witness)["tick3"] == 2, what="the rerun ticks elsewhere")
    time.sleep(max(0.0, thaw_at - time.monotonic()))
    workers[name].send(signal.SIGCONT)
    gate.touch()
    standing.wait_for_run(run_id, "completed")
    _assert_one_after_the_other(witness)
    lost, *_, last = standing.attempts(run_id)
    assert (lost["worker"], lost["message"]) == (name, "worker went away mid-call")
    assert last["worker"] != name
    standing.wait_for_worker(name, "online")


def _ticks_until(deployment: Deployment, witness: Path, gate: Path) -> str:
    """A run on one of the workers, which prints numbers until the gate is there: it waits for no starting of
    programs, however long that takes."""
    asked = {"path": str(witness), "gate": str(gate), "seconds": 60.0, "every": 0.02}
    run_id = deployment.start_run("ticking_there", **asked)
    eventually(lambda: words(witness)["tick3"], what="the run ticks")
    return run_id


def _assert_one_after_the_other(witness: Path) -> None:
    old, new = pids(witness)
    last = max(seen.at for seen in read(witness) if seen.pid == old)
    first = min(seen.at for seen in read(witness) if seen.pid == new)
    assert last < first, f"the old engine wrote {last - first:.3f} s after the new one began"
    assert not alive(old)


@pytest.mark.fault("1.5")
def test_nothing_is_believed_of_a_worker_that_was_frozen_whole(standing: Deployment, tmp_path: Path) -> None:
    workers = {name: standing.worker(name) for name in ("third", "fourth")}
    witness, gate = tmp_path / "witness", tmp_path / "gate"
    run_id = _ticks_until(standing, witness, gate)
    holder = workers[standing.run(run_id)["worker"]]
    engines = holder.engines()
    frozen = [holder.pid, holder.warden, *engines]
    signal_all(frozen, signal.SIGSTOP)
    eventually(lambda: words(witness)["tick3"] == 2, what="the rerun ticks elsewhere")
    signal_all(frozen, signal.SIGCONT)
    eventually(lambda: _all_dead(engines), what="the thawed engine is gone")
    gate.touch()
    run = standing.wait_for_run(run_id, "completed")
    outcomes = [attempt["outcome"] for attempt in standing.attempts(run_id)]
    assert (outcomes[0], outcomes[-1]) == ("lost", "completed")
    ticks = [int(line.split()[1]) for line in standing.log_lines(run_id)]
    begun = [place for place, tick in enumerate(ticks) if tick == 1]
    assert len(begun) == len(outcomes)
    for of, to in zip(begun, [*begun[1:], len(ticks)], strict=True):
        assert ticks[of:to] == list(range(1, to - of + 1)), "a late line was believed"
    assert ticks[-1] == run["result"]


@pytest.mark.fault("1.13")
def test_engines_end_with_a_killed_warden_and_the_agent_goes_on(standing: Deployment, tmp_path: Path) -> None:
    worker = standing.worker("wardenless")
    run_id, witness, children, gate = _run_with_a_stubborn_child(standing, tmp_path)
    processes = _everything(worker, children)
    warden = worker.warden
    signal_all([warden], signal.SIGKILL)
    eventually(lambda: _all_dead(processes), 1.0, "engines and children are gone")
    gate.touch()
    standing.wait_for_run(run_id, "completed")
    assert words(witness)["begin"] == 2
    assert worker.process is not None
    assert worker.process.poll() is None, "the agent ended with its warden"


@pytest.mark.fault("1.13")
def test_a_stopped_warden_is_killed_and_its_engines_with_it(standing: Deployment, tmp_path: Path) -> None:
    worker = standing.worker("stopped")
    run_id, witness, children, gate = _run_with_a_stubborn_child(standing, tmp_path)
    processes = _everything(worker, children)
    warden = worker.warden
    signal_all([warden], signal.SIGSTOP)
    eventually(lambda: not alive(warden), FAST.heartbeat_s + 2 * FAST.margin_s + 1, "the warden is gone")
    eventually(lambda: _all_dead(processes), 1.0, "engines and children are gone")
    gate.touch()
    standing.wait_for_run(run_id, "completed")
    assert words(witness)["begin"] == 2


@pytest.mark.fault("1.13")
def test_the_next_agent_clears_what_agent_and_warden_left_when_both_were_killed(
    standing: Deployment, tmp_path: Path
) -> None:
    worker = standing.worker("both")
    run_id, witness, children, gate = _run_with_a_stubborn_child(standing, tmp_path)
    engines = worker.engines()
    stubborn = [int(line) for line in children.read_text().split()]
    signal_all([worker.warden, worker.pid], signal.SIGKILL)
    worker.wait()
    eventually(lambda: _all_dead(engines), 1.0, "the engines ended by the death signal")
    children.unlink()
    worker.start()
    eventually(lambda: words(witness)["begin"] == 2, what="the run was started again")
    assert _all_dead(stubborn), "a child of the dead engine was there when the run started again"
    gate.touch()
    standing.wait_for_run(run_id, "completed")
