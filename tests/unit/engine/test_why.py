"""Why a run waits, and for whom."""

from __future__ import annotations

from typing import Any

import pytest

from farhand.engine.queue import Queue
from farhand.engine.why import Explanations
from farhand.model import JobSettings, Page, Run

from .records import a_job, a_run

pytestmark = pytest.mark.anyio


class Runs:
    """The runs of a server, as far as explanations ask for them."""

    def __init__(self, *runs: Run) -> None:
        self.items = {run.id: run for run in runs}

    async def get(self, id: str) -> Run:
        return self.items[id]

    async def attempts(self, id: str) -> list[Any]:
        return []

    async def page(self, limit: int, *, flow: str, state: str) -> Page[Run]:
        return Page([run for run in self.items.values() if (run.flow, run.state) == (flow, state)])


async def test_a_run_that_waits_for_room_says_so_and_names_the_runs_that_have_it() -> None:
    job = a_job(run="r4", settings=JobSettings(max_concurrent=2))
    runs = Runs(
        a_run("r2", state="running"),
        a_run("r1", state="starting"),
        a_run("r3", state="running", root="r0", parent="r0"),
        a_run("r4"),
        a_run("r5", state="running", flow="other"),
    )
    queue = Queue()
    queue.add(job, 1.0)
    queue.explain(queue.lane_of(job), "waits for another run of weather to end; 2 of at most 2 are under way")
    why = await Explanations(runs, queue).why("r4")  # type: ignore[arg-type]
    assert (why.code, why.holders) == ("limit", ["r1", "r2"])
    assert "2 of at most 2" in why.message


async def test_a_run_that_waits_for_anything_else_names_none() -> None:
    queue = Queue()
    queue.add(a_job(run="r4"), 1.0)
    why = await Explanations(Runs(a_run("r4"), a_run("r2", state="running")), queue).why("r4")  # type: ignore[arg-type]
    assert (why.code, why.holders) == ("in_line", [])


async def test_calls_that_wait_for_the_same_are_told_once_with_their_number() -> None:
    """A map has thousands of them."""
    queue = Queue()
    for number in range(5):
        call = a_job(f"c{number}", run="r1", kind="call", key=f"k{number}", name="fit", depth=1)
        queue.add(call, 1.0)
    queue.add(a_job("d", run="r1", kind="call", key="d", name="score", depth=1), 1.0)
    queue.explain(queue.lanes()[0][1], "waits for label gpu")
    why = await Explanations(Runs(a_run("r1", state="running")), queue).why("r1")  # type: ignore[arg-type]
    assert [(call.name, call.key, call.count) for call in why.calls] == [("fit", "k0", 5), ("score", "d", 1)]
    assert {call.message for call in why.calls} == {"waits for label gpu"}
