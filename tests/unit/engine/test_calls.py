"""The calls of a run: what a page of them begins with, and why one of them waits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farhand.engine.calls import Calls, merged
from farhand.engine.member import LOST
from farhand.engine.runs import Runs
from farhand.model import Ask, TaskRun
from farhand_worker import protocol

from .records import FLOW, a_hello, a_job
from .world import World

pytestmark = pytest.mark.anyio


@pytest.fixture
async def runs(world: World) -> Runs:
    await world.store.flows.replace("default", [FLOW], 1.0)
    return Runs(world.store, world.queue, world.fleet, world.consequences, dispatcher=world.dispatcher)


@pytest.fixture
def calls(world: World, runs: Runs) -> Calls:
    return Calls(world.store, runs, world.queue, world.fleet)


async def test_a_run_whose_placed_call_is_on_a_lost_worker_says_when_it_is_taken_up_again(
    runs: Runs, calls: Calls, world: World
) -> None:
    """Whoever looks on is told to look again; the call says the same; once the worker is back it is over."""
    await world.attach()
    run = await runs.start("weather", {})
    await world.hand_over()
    (job,) = [job for job in await world.store.jobs.held() if job.run == run.id]
    await world.started(job)
    _, link = await world.attach(a_hello("gpu-1"), ("gpu",))
    gpu = world.fleet.member("gpu-1")
    placed = [
        a_job(f"c{n}", run=run.id, kind="call", key=f"k{n}", name="fit", lease=100 + n, worker="gpu-1")
        for n in range(2)
    ]
    for call in placed:
        world.fleet.hold(gpu, call, call.lease or 0)
    task = TaskRun(run.id, "k0", 1, "fit", "running", placed="c0", worker="gpu-1")
    assert ((await runs.get(run.id)).message, calls.why_waiting(task)) == ("running on box", "")
    world.attachments.closed(gpu, link)
    async with world.bus.subscribe() as notices:
        await world.rescuer.declare(gpu, LOST, "the worker is not heard of")
        assert (await anext(notices)).run == run.id
    why = "is on gpu-1, which is not heard of; queued again in 18 s unless it comes back"
    told = f"running on box; fit {why} (and 1 more of its calls)"
    assert (await runs.get(run.id)).message == told
    assert [each.message for each in (await runs.page(5)).items] == [told]
    assert calls.why_waiting(task) == why
    gpu.link = link
    world.attachments.back(gpu)
    assert ((await runs.get(run.id)).message, calls.why_waiting(task)) == ("running on box", "")


async def test_a_run_whose_placed_call_waits_says_why(runs: Runs, calls: Calls, world: World) -> None:
    """What runs and waits inside is not silent about it; once the call is gone, so is the sentence."""
    await world.attach()
    run = await runs.start("weather", {})
    await world.hand_over()
    (job,) = [job for job in await world.store.jobs.held() if job.run == run.id]
    await world.started(job)
    call = a_job("call", run=run.id, kind="call", key="k", name="fit", ask=Ask(labels=("gpu",)))
    world.queue.add(call, 10.0)
    await world.hand_over()
    why = "waits for label gpu; no attached worker could ever take it: box has no label gpu"
    assert (await runs.get(run.id)).message == f"running on box; fit {why}"
    task = TaskRun(run.id, "k", 1, "fit", "queued", placed="call")
    assert calls.why_waiting(task) == why
    world.queue.add(replace(call, id="other"), 10.0)
    assert (await runs.get(run.id)).message == f"running on box; fit {why} (and 1 more of its calls)"
    world.queue.remove("call")
    world.queue.remove("other")
    assert (await runs.get(run.id)).message == "running on box"
    assert calls.why_waiting(task) == ""


def tasks(*numbers: int, state: str = "completed") -> list[TaskRun]:
    return [TaskRun("r", f"k{number}", number, "fit", state) for number in numbers]


@pytest.mark.parametrize(
    ("failing", "items", "limit", "shown", "goes_on"),
    [
        ((), (1, 2, 3), 3, [1, 2, 3], "3"),
        ((9,), (1, 2, 3, 4), 4, [9, 1, 2, 3], "3"),
        ((2, 9), (1, 2, 3, 4), 4, [2, 9, 1, 3], "3"),
        ((1, 2), (1, 2, 3, 4), 4, [1, 2, 3, 4], "4"),
        ((7, 8), (5, 6, 7, 8), 4, [7, 8, 5, 6], "6"),
    ],
)
def test_a_page_that_begins_with_what_failed_goes_on_where_its_others_end(
    failing: tuple[int, ...], items: tuple[int, ...], limit: int, shown: list[int], goes_on: str
) -> None:
    page = merged(tasks(*failing, state="failed"), tasks(*items), limit)
    assert ([task.number for task in page.items], page.next) == (shown, goes_on)


async def test_calls_are_read_by_the_beginning_of_a_runs_id(runs: Runs, calls: Calls, world: World) -> None:
    await world.attach()
    run = await runs.start("weather", {})
    await world.hand_over()
    (job,) = [job for job in await world.store.jobs.held() if job.run == run.id]
    ends = ["completed", "completed", "completed", "failed", "crashed", "completed"]
    await world.report(
        job, *(protocol.Checkpoint(f"k{n}", "fit", end, 1.0, 2.0) for n, end in enumerate(ends, 1))
    )
    first = await calls.failing_first(run.id[:-3], 0, 4)
    assert [task.key for task in first.items] == ["k4", "k5", "k1", "k2"]
    assert (await calls.failing_first(run.id, 0, 1)).next == "1"
    assert (await calls.failing_first(run.id, 2, 4)).next is None
    assert await calls.tally(run.id) == {"completed": 4, "failed": 1, "crashed": 1}
    assert [task.key for task in (await calls.page(run.id, state="completed", after=2)).items] == ["k3", "k6"]
