"""Calls and runs that share a slot: each under a lease of its own, one slot for all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from farhand.errors import StaleLease
from farhand.model import Job
from farhand.resources import Capacity
from farhand.store.changes import Leased
from farhand.store.claims import Claim
from farhand.store.reports import Report
from farhand_worker.protocol import Exit, ProtocolViolation, Started
from tests.contract.conftest import Story
from tests.harness.stores import handed

pytestmark = pytest.mark.anyio

ONE = Capacity(1)
STARTED = Started(1000.0, 42, "3.11.7", "host1")


async def queued(story: Story, keys: str = "abc", **ask: Any) -> tuple[Job, list[Job]]:
    """A run on w1, and its calls in the queue."""
    parent = (await story.running()).job
    asked = {"labels": ["gpu"], "policy": "require", "runs_on": "any", **ask}
    calls = [replace(story.call(key), ask=asked) for key in keys]
    recorded = await story.store.reports.record(parent.id, parent.lease or 0, "engine", 2, calls, story.now)
    return parent, list(recorded.changes.enqueued)


async def in_line(story: Story, jobs: list[Job], capacity: Capacity = ONE) -> list[Leased | None]:
    """The first with a slot of w2, and the others behind it."""
    claims = [Claim("w2", capacity, job.id, follows=number > 0) for number, job in enumerate(jobs)]
    return list(await story.store.jobs.lease(claims, story.now))


async def returned(story: Story, job: Job) -> Any:
    event = Exit(story.now, "returned", "the one before it takes long")
    return await story.store.reports.record(job.id, job.lease or 0, "agent", 1, [event], story.now)


async def test_a_slot_is_shared_under_a_lease_each(story: Story) -> None:
    _, jobs = await queued(story)
    first, second, third = [made.job for made in await in_line(story, jobs) if made is not None]
    assert len({first.lease, second.lease, third.lease}) == 3
    assert (first.behind, second.behind, third.behind) == (None, first.lease, first.lease)
    other = await story.run()
    assert await handed(story.store, other.id, "w2", ONE, story.now) is None
    assert await handed(story.store, other.id, "w2", Capacity(2), story.now) is not None


async def test_the_slot_is_free_when_the_last_of_them_has_ended(story: Story) -> None:
    _, jobs = await queued(story, "ab")
    other = await story.run()
    for made in await in_line(story, jobs):
        assert made is not None
        assert await handed(story.store, other.id, "w2", ONE, story.now) is None
        await story.report(made, STARTED, story.result())
    assert await handed(story.store, other.id, "w2", ONE, story.now) is not None


async def test_who_comes_behind_a_slot_that_nobody_has_any_more_takes_one_of_its_own(story: Story) -> None:
    _, jobs = await queued(story, "ab")
    (first,) = await in_line(story, jobs[:1])
    assert first is not None
    await story.report(first, STARTED, story.result())
    claim = Claim("w2", ONE, jobs[1].id, behind=first.job.lease)
    (made,) = await story.store.jobs.lease([claim], story.now)
    assert made is not None
    assert made.job.behind is None
    full = await story.run()
    assert await handed(story.store, full.id, "w2", ONE, story.now) is None


async def test_nobody_comes_behind_one_that_asks_for_something_else(story: Story) -> None:
    _, (small,) = await queued(story, "a", cpus=1)
    await in_line(story, [small], Capacity(1, cpus=4))
    _, (large,) = await queued(story, "b", cpus=4)
    held = await story.job(small.id)
    claim = Claim("w2", Capacity(1, cpus=4), large.id, behind=held.lease)
    assert await story.store.jobs.lease([claim], story.now) == (None,)


async def test_cores_and_memory_are_taken_once_for_all_that_share_a_slot(story: Story) -> None:
    _, [*jobs, other] = await queued(story, "abcd", cpus=2)
    assert all(await in_line(story, jobs, Capacity(2, cpus=4)))
    assert await handed(story.store, other.id, "w2", Capacity(2, cpus=4), story.now) is not None


async def test_what_is_given_back_was_no_attempt_and_costs_nothing(story: Story) -> None:
    parent, jobs = await queued(story, "ab")
    _, second = await in_line(story, jobs)
    assert second is not None
    recorded = await returned(story, second.job)
    (again,) = recorded.changes.enqueued
    expected = (0, 0, 0, 0)
    assert (again.attempt, again.retries_used, again.crashes, again.handoffs_failed) == expected
    assert (again.state, again.lease, again.worker, again.last_worker, again.behind) == ("queued",) + (
        None,
    ) * 4
    assert (again.age_at, again.not_before) == (second.job.age_at, second.job.not_before)
    assert again == await story.job(again.id)
    task = await story.task(parent.run, "b")
    assert (task.state, task.attempts, task.worker) == ("queued", 0, None)
    had = [attempt.job for attempt, _ in await story.store.workers.attempts("w2", 0.0, 10)]
    assert had == [jobs[0].id]


async def test_what_was_given_back_is_believed_under_its_next_lease_alone(story: Story) -> None:
    _, jobs = await queued(story, "ab")
    _, second = await in_line(story, jobs)
    assert second is not None
    assert (await returned(story, second.job)).seq == 1
    assert (await returned(story, second.job)).seq == 1  # sent again, recorded once
    with pytest.raises(StaleLease):
        await story.report(second, STARTED, story.result())
    leased = await handed(story.store, second.job.id, "w3", ONE, story.now)
    assert leased is not None
    assert leased.job.attempt == 1
    await story.report(leased, STARTED, story.result())
    assert (await story.job(leased.job.id)).state == "ended"


async def test_what_has_begun_cannot_be_given_back(story: Story) -> None:
    _, jobs = await queued(story, "a")
    (first,) = await in_line(story, jobs)
    assert first is not None
    await story.report(first, STARTED)
    with pytest.raises(ProtocolViolation, match="though it had begun"):
        await returned(story, first.job)


async def test_one_that_is_cancelled_while_it_waits_is_cancelled_when_it_is_given_back(story: Story) -> None:
    parent, jobs = await queued(story, "ab")
    _, second = await in_line(story, jobs)
    assert second is not None
    await story.store.runs.cancel(parent.run, story.now)
    await returned(story, await story.job(second.job.id))
    assert (await story.job(second.job.id)).state == "ended"
    assert (await story.task(parent.run, "b")).state == "cancelled"


async def runs_in_line(story: Story, count: int = 3) -> list[Leased]:
    """So many runs that share a slot of w2, the first of them with it."""
    made = await in_line(story, [await story.run() for _ in range(count)])
    assert all(made)
    return [each for each in made if each is not None]


async def events_of(story: Story, run: str) -> list[str]:
    return [event.kind for event in (await story.store.events.page(run=run)).items]


async def test_runs_share_a_slot_as_calls_do(story: Story) -> None:
    first, second, third = await runs_in_line(story)
    assert (second.job.behind, third.job.behind) == (first.job.lease, first.job.lease)
    for made in (second, third):
        run = await story.store.runs.get(made.run.id)
        assert run is not None
        assert run == made.run
        assert (run.state, run.reason, run.worker, run.attempt) == ("starting", "leased", "w2", 1)
        assert run.message == "handed to w2, behind another run there"
        assert await events_of(story, run.id) == ["run.queued", "run.starting"]
        assert [attempt.lease for attempt in await story.store.runs.attempts(run.id)] == [made.job.lease]
    assert await handed(story.store, (await story.run()).id, "w2", ONE, story.now) is None


async def test_runs_that_end_together_are_recorded_together(story: Story) -> None:
    made = await runs_in_line(story)
    reports = [
        Report(each.job.id, each.job.lease or 0, "engine", 1, [STARTED, story.result()]) for each in made
    ]
    recorded = await story.store.reports.record_all(reports, story.now, "w2")
    assert recorded.seqs == (2, 2, 2)
    assert {run.state for run in recorded.changes.runs} == {"completed"}
    for each in made:
        assert await story.state(each.run.id) == "completed"
        kinds = ["run.queued", "run.starting", "run.running", "run.completed"]
        assert await events_of(story, each.run.id) == kinds


async def test_a_run_that_is_given_back_is_queued_as_if_it_had_not_been_handed_over(story: Story) -> None:
    _, second = await runs_in_line(story, 2)
    recorded = await returned(story, second.job)
    (again,) = recorded.changes.enqueued
    assert (again.state, again.attempt, again.lease, again.behind) == ("queued", 0, None, None)
    run = await story.store.runs.get(second.run.id)
    assert run is not None
    assert (run.state, run.reason, run.attempt, run.worker) == ("queued", "returned", 0, None)
    assert run.message == "the one before it takes long"
    assert await story.store.runs.attempts(run.id) == []
    leased = await handed(story.store, again.id, "w3", ONE, story.now)
    assert leased is not None
    await story.report(leased, STARTED, story.result())
    assert await story.state(run.id) == "completed"


async def test_a_run_that_is_cancelled_while_it_waits_is_cancelled_when_it_is_given_back(
    story: Story,
) -> None:
    _, second = await runs_in_line(story, 2)
    await story.store.runs.cancel(second.run.id, story.now)
    assert await story.state(second.run.id) == "cancelling"
    await returned(story, await story.job(second.job.id))
    assert await story.state(second.run.id) == "cancelled"


async def test_runs_of_a_flow_with_a_limit_take_their_slots_by_themselves(story: Story) -> None:
    jobs = [await story.run(max_concurrent=1) for _ in range(2)]
    first, second = await in_line(story, jobs)
    assert first is not None
    assert second is None
