"""3.55 to 3.58: calls and runs wait behind others when something is killed, cancelled or drained."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.harness.deployment import FAST, TERMINAL, Deployment, deployed
from tests.harness.processes import send
from tests.harness.waiting import eventually
from tests.harness.witnesses import words

COUNT = 60
GATED = 30
TRIES = 10


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A worker with one slot, on which nothing is given back for want of patience."""
    times = replace(FAST, behind_s=600.0)
    with deployed(tmp_path_factory.mktemp("patient"), times=times) as deployment:
        deployment.worker("box", "ahead", parallel=1)
        yield deployment


class Spread:
    """A run of many short calls, of which one waits for its gate."""

    def __init__(self, deployment: Deployment, directory: Path) -> None:
        self._deployment = deployment
        self.witness, self.gate = directory / "witness", directory / "gate"
        path, gate = str(self.witness), str(self.gate)
        self.id = deployment.start_run("many_short", path=path, count=COUNT, gate=gate, gated=GATED)

    def waiting(self) -> int:
        """How many of its calls wait on a slot behind another."""
        why = self._deployment.get(f"/runs/{self.id}/why")
        return sum(call["count"] for call in why["calls"] if call["code"] == "behind")

    def is_held_up(self) -> bool:
        """Whether others wait behind the gated call, which runs. They do not if those before it took long."""
        eventually(lambda: words(self.witness)[f"call{GATED}"], what="the gated call runs")
        return self.waiting() > 0

    def ends(self, again: int) -> None:
        """Open the gate: every call is recorded once, and none but the gated one was executed again."""
        self.gate.touch()
        ended = self._deployment.wait_for_run(self.id, *TERMINAL)
        assert (ended["state"], ended["result"]) == ("completed", list(range(COUNT)))
        executed = words(self.witness)
        assert executed.pop(f"call{GATED}") == 1 + again
        assert executed == {f"call{number}": 1 for number in range(COUNT) if number != GATED}
        tasks = self._deployment.items(f"/runs/{self.id}/tasks", limit=200)
        assert [task["state"] for task in tasks] == ["completed"] * COUNT


def held_up(deployment: Deployment, directory: Path) -> Spread:
    """A run whose gated call has others behind it; on a busy machine it may be one of several tries."""
    for number in range(TRIES):
        tried = directory / str(number)
        tried.mkdir()
        spread = Spread(deployment, tried)
        if spread.is_held_up():
            return spread
        spread.ends(again=0)
    raise AssertionError(f"in none of {TRIES} runs did calls wait behind another")


def _kill_engine(deployment: Deployment) -> None:
    for engine in deployment.workers["box"].engines():
        send(engine, signal.SIGKILL)


def _kill_agent(deployment: Deployment) -> None:
    deployment.workers["box"].kill()
    deployment.workers["box"].start()


def _kill_server(deployment: Deployment) -> None:
    deployment.server.kill()
    deployment.restart()


@pytest.mark.fault("3.55")
@pytest.mark.parametrize(
    ("kill", "again"),
    [(_kill_engine, 1), (_kill_agent, 1), (_kill_server, 0)],
    ids=["engine", "agent", "server"],
)
def test_what_waits_behind_a_call_whose_processes_are_killed_is_neither_lost_nor_run_twice(
    patient: Deployment, tmp_path: Path, kill: Callable[[Deployment], None], again: int
) -> None:
    spread = held_up(patient, tmp_path)
    kill(patient)
    eventually(lambda: words(spread.witness)[f"call{GATED}"] == 1 + again, 40, "the gated call runs")
    spread.ends(again)


@pytest.mark.fault("3.56")
def test_a_drain_gives_back_what_waits_at_once_and_finishes_what_runs(
    patient: Deployment, tmp_path: Path
) -> None:
    spread = held_up(patient, tmp_path)
    patient.post("/workers/box/drain")
    eventually(lambda: not spread.waiting(), what="nothing waits there any more")
    assert words(spread.witness)[f"call{GATED}"] == 1
    patient.post("/workers/box/resume")
    spread.ends(again=0)


@pytest.mark.fault("3.57")
def test_what_waits_behind_another_is_cancelled_with_its_run_before_it_begins(
    patient: Deployment, tmp_path: Path
) -> None:
    spread = held_up(patient, tmp_path)
    before = words(spread.witness)
    patient.post(f"/runs/{spread.id}/cancel")
    patient.wait_for_run(spread.id, "cancelled")
    eventually(lambda: not patient.get("/workers/box")["holds"], what="the worker holds nothing")
    assert words(spread.witness) == before


@pytest.mark.fault("3.58")
def test_a_call_that_turns_out_long_holds_none_up_that_were_to_wait_behind_it(tmp_path: Path) -> None:
    with deployed(tmp_path) as deployment:
        deployment.worker("box", "ahead", parallel=2)
        spread = Spread(deployment, tmp_path)
        others = [f"call{number}" for number in range(COUNT) if number != GATED]
        eventually(lambda: all(words(spread.witness)[call] for call in others), 40, "all others have run")
        assert not spread.gate.exists()
        spread.ends(again=0)


def _started_together(deployment: Deployment, directory: Path, gate: Path) -> list[str]:
    """Runs that were queued while their worker's one slot was taken; one of them waits for its gate."""
    slot = directory / "slot"
    deployment.start_run("keeps_slot", gate=str(slot))
    path = str(directory / "witness")
    started = [
        deployment.start_run("short_run", path=path, number=number, gate=str(gate) if number == GATED else "")
        for number in range(COUNT)
    ]
    slot.touch()
    eventually(lambda: words(directory / "witness")[f"call{GATED}"], what="the gated run runs")
    return started


def _waiting(deployment: Deployment, runs: list[str]) -> list[str]:
    """Those that wait on a slot behind another."""
    found = [deployment.get(f"/runs/{run}") for run in runs]
    return [run["id"] for run in found if run["state"] == "starting" and "behind another" in run["message"]]


@pytest.mark.fault("3.55")
def test_runs_wait_behind_another_as_calls_do(patient: Deployment, tmp_path: Path) -> None:
    for number in range(TRIES):
        directory = tmp_path / str(number)
        directory.mkdir()
        gate = directory / "gate"
        runs = _started_together(patient, directory, gate)
        waiting = _waiting(patient, runs)
        if len(waiting) > 1:
            break
        gate.touch()
        patient.wait_for_run(runs[-1], *TERMINAL)
    else:
        raise AssertionError(f"in none of {TRIES} tries did runs wait behind another")
    cancelled = waiting[-1]
    patient.post(f"/runs/{cancelled}/cancel")
    patient.wait_for_run(cancelled, "cancelled")
    _kill_engine(patient)
    eventually(lambda: words(directory / "witness")[f"call{GATED}"] == 2, 40, "the gated run runs again")
    gate.touch()
    for number, run in enumerate(runs):
        state = "cancelled" if run == cancelled else "completed"
        ended = patient.wait_for_run(run, *TERMINAL)
        assert (ended["state"], len(ended["attempts"])) == (state, 2 if number == GATED else 1)
    executed = words(directory / "witness")
    assert executed.pop(f"call{GATED}") == 2
    done = [number for number, run in enumerate(runs) if run != cancelled and number != GATED]
    assert executed == {f"call{number}": 1 for number in done}
