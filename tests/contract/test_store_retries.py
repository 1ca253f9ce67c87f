"""A run retried by a person takes over outcomes of the earlier one, and no more than it may."""

from __future__ import annotations

from typing import Any

import pytest

from farhand.errors import NotFound
from farhand.model import Ask, Job, JobSettings, Run
from farhand.store.seeds import Seed

pytestmark = pytest.mark.anyio


async def ended(story, *events: Any) -> Run:
    """A failed run in which these events were reported."""
    leased = await story.running()
    await story.report(leased, *events)
    await story.report(leased, story.result("failed"))
    run = await story.store.runs.get(leased.run.id)
    assert run is not None
    return run


async def retried(story, source: Run, key: str | None = None, **seed: Any) -> tuple[Run, Job]:
    """A new run that retries ``source``."""
    story.now += 1
    run = Run(
        f"{source.id}x{int(story.now)}", source.flow, "queued", "", "", source.params, story.now,
        idempotency_key=key, retry_of=source.id,
    )  # fmt: skip
    job = Job(
        run.id.replace("run", "job"), run.id, "run", "queued", run.flow, "m:f",
        {"enc": "json", "text": "{}"}, "sha256:b",
        Ask(labels=("gpu",)), JobSettings(), story.now, story.now,
    )  # fmt: skip
    run, job, _ = await story.store.runs.create(run, job, Seed(source.id, **seed))
    return run, job


async def kept(story, job: Job) -> list[str]:
    return [task.key for task in await story.store.tasks.kept(job.id)]


async def test_from_failure_all_that_completed_is_taken_over(story):
    source = await ended(story, story.checkpoint("a"), story.checkpoint("b", "failed"), story.checkpoint("c"))
    run, job = await retried(story, source)
    assert await kept(story, job) == ["a", "c"]
    assert (await story.store.runs.get(run.id)).retry_of == source.id
    assert (await story.task(run.id, "a")).seeded
    assert (await story.lease(job)).kept == 2


async def test_what_was_not_kept_or_did_not_end_is_not_taken_over(story):
    source = await ended(story, story.checkpoint("a", kept=False), story.began("b"), story.checkpoint("c"))
    _, job = await retried(story, source)
    assert await kept(story, job) == ["c"]


async def test_from_start_nothing_is_taken_over(story):
    source = await ended(story, story.checkpoint("a"))
    _, job = await retried(story, source, since="start")
    assert await kept(story, job) == []


async def test_from_a_task_it_and_all_after_it_run_again_though_they_succeeded(story):
    """B133."""
    source = await ended(story, *(story.checkpoint(key) for key in "abcd"))
    _, job = await retried(story, source, since="task-c")
    assert await kept(story, job) == ["a", "b"]
    _, job = await retried(story, source, since="b")
    assert await kept(story, job) == ["a"]


async def test_a_task_that_was_not_called_is_refused_naming_those_that_were(story):
    source = await ended(story, story.checkpoint("a"))
    with pytest.raises(NotFound, match="task-a"):
        await retried(story, source, since="z")


async def test_in_order_stops_at_the_first_call_without_an_outcome(story):
    """B134: with other code or parameters."""
    source = await ended(story, story.checkpoint("a"), story.checkpoint("b", "failed"), story.checkpoint("c"))
    _, job = await retried(story, source, in_order=True)
    assert await kept(story, job) == ["a"]


async def test_a_key_seen_before_gives_the_first_retry(story):
    source = await ended(story, story.checkpoint("a"))
    first, _ = await retried(story, source, key="k")
    second, job = await retried(story, source, key="k")
    assert (second.id, job.run) == (first.id, first.id)


async def test_outcomes_of_placed_calls_are_taken_over(story):
    leased = await story.running()
    await story.report(leased, story.call("p"))
    placed = (await story.task(leased.run.id, "p")).placed
    call = await story.running(placed)
    await story.report(call, story.result())
    await story.report(leased, story.result("failed"))
    source = await story.store.runs.get(leased.run.id)
    _, job = await retried(story, source)
    assert await kept(story, job) == ["p"]


async def test_what_a_failed_placed_call_had_finished_is_not_made_again(story):
    leased = await story.running()
    await story.report(leased, story.call("p"))
    placed = (await story.task(leased.run.id, "p")).placed
    call = await story.running(placed)
    await story.report(call, story.checkpoint("inner"))
    await story.report(call, story.result("failed"))
    await story.report(leased, story.result("failed"))
    source = await story.store.runs.get(leased.run.id)
    first, _ = await retried(story, source)
    await story.cancel(first.id)  # before the call was placed: the next retry takes it over from here
    again, job = await retried(story, await story.store.runs.get(first.id))
    rerun = await story.running(job)
    await story.report(rerun, story.call("p"))
    placed = (await story.task(again.id, "p")).placed
    assert [task.key for task in await story.store.tasks.kept(placed)] == ["inner"]


async def test_a_call_that_is_made_although_its_outcome_was_taken_over_is_recorded(story):
    source = await ended(story, story.checkpoint("a"), story.checkpoint("b"))
    run, job = await retried(story, source, in_order=True)
    leased = await story.running(job)
    await story.report(leased, story.began("b"))
    task = await story.task(run.id, "b")
    assert (task.state, task.seeded, task.value) == ("running", False, None)
    await story.report(leased, story.checkpoint("b", value={"enc": "json", "text": "2"}))
    await story.report(leased, story.checkpoint("b", value={"enc": "json", "text": "3"}))
    task = await story.task(run.id, "b")
    assert (task.state, task.seeded, task.value["text"]) == ("completed", False, "2")
    assert (await story.task(run.id, "a")).seeded


async def test_a_placed_call_that_is_made_all_the_same_is_placed(story):
    leased = await story.running()
    await story.report(leased, story.call("p"))
    call = await story.running((await story.task(leased.run.id, "p")).placed)
    await story.report(call, story.result())
    await story.report(leased, story.result("failed"))
    run, job = await retried(story, await story.store.runs.get(leased.run.id))
    rerun = await story.running(job)
    recorded = await story.report(rerun, story.call("p"))
    assert recorded.changes.outcomes == ()
    task = await story.task(run.id, "p")
    assert (task.state, task.seeded, task.placed) == ("queued", False, recorded.changes.enqueued[0].id)
