"""Hooks: queued once, by the transaction that records the end, and no part of the run's outcome."""

from __future__ import annotations

import json

import pytest

from farhand.model import Hook
from farhand.resources import Capacity
from tests.harness.stores import handed

pytestmark = pytest.mark.anyio

FAILED = Hook("failed", 0, "tell")
ALL = tuple(Hook(state, 0, state) for state in ("completed", "failed", "cancelled", "crashed"))


async def hooks_of(story, run_id):
    page = await story.store.tasks.page(run_id, limit=1000)
    return [task for task in page.items if task.key.startswith("hook:")]


@pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
async def test_the_hook_of_the_end_is_queued_and_no_other(story, state):
    leased = await story.running(hooks=ALL)
    recorded = await story.report(leased, story.result(state, message="as it is"))
    [queued] = recorded.changes.enqueued
    assert (queued.kind, queued.key, queued.entry, queued.state) == (
        "hook",
        f"hook:{state}:0",
        "m:f",
        "queued",
    )
    summary = json.loads(queued.args["text"])
    assert (summary["state"], summary["params"], summary["flow"]) == (state, {"a": 1}, "etl")
    assert summary["result"] == (1 if state == "completed" else None)
    [task] = await hooks_of(story, leased.run.id)
    assert (task.name, task.state, task.placed) == (f"on_{state}: {state}", "queued", queued.id)


async def test_a_crash_calls_its_hook_once_however_often_it_is_told(story):
    """FAULTS B010."""
    leased = await story.running(hooks=ALL, crash_retries=0)
    changes = await story.end(leased, "lost", "worker_lost")
    assert [job.key for job in changes.enqueued] == ["hook:crashed:0"]
    assert await story.end(leased, "lost", "worker_lost") is None
    assert len(await hooks_of(story, leased.run.id)) == 1


async def test_a_retry_is_no_end(story):
    leased = await story.running(hooks=(FAILED,), retries=1)
    await story.report(leased, story.result("failed"))
    assert await hooks_of(story, leased.run.id) == []
    again = await story.running(leased.job)
    await story.report(again, story.result("failed"))
    assert len(await hooks_of(story, leased.run.id)) == 1


async def test_a_run_that_is_cancelled_in_the_queue_calls_its_hook(story):
    job = await story.run(hooks=ALL)
    changes = await story.cancel(job.run)
    assert [queued.key for queued in changes.enqueued] == ["hook:cancelled:0"]


async def test_what_a_hook_does_changes_nothing_of_its_run(story):
    leased = await story.running(hooks=(FAILED,), retries=0)
    recorded = await story.report(leased, story.result("failed", message="no"))
    hook = await story.running(recorded.changes.enqueued[0])
    await story.report(
        hook, story.log("telling"), story.result("failed", error={"type": "E", "message": "m"})
    )
    run = await story.store.runs.get(leased.run.id)
    assert (run.state, run.message) == ("failed", "no")
    [task] = await hooks_of(story, leased.run.id)
    assert (task.state, task.kept) == ("failed", False)
    assert len((await story.store.logs.page(leased.run.id)).items) == 1


async def test_a_hook_whose_engine_dies_is_not_called_again(story):
    leased = await story.running(hooks=(FAILED,))
    recorded = await story.report(leased, story.result("failed"))
    hook = await story.running(recorded.changes.enqueued[0])
    changes = await story.end(hook, "lost", "worker_lost")
    assert changes.enqueued == ()
    [task] = await hooks_of(story, leased.run.id)
    assert task.state == "crashed"


async def test_a_hook_that_was_never_begun_is_handed_over_again(story):
    leased = await story.running(hooks=(FAILED,))
    recorded = await story.report(leased, story.result("failed"))
    hook = await story.lease(recorded.changes.enqueued[0])
    changes = await story.end(hook, "lost", "worker_lost")
    assert [job.id for job in changes.enqueued] == [hook.job.id]


# ---------------------------------------------------------------- max_concurrent


async def test_no_more_runs_of_a_flow_are_leased_than_it_allows(story):
    """B052: counted from live leases, however the run before it ended."""
    first, second, third = [await story.run(max_concurrent=2) for _ in range(3)]
    one = await story.lease(first)
    await story.running(second)
    assert await handed(story.store, third.id, "w1", Capacity(100), story.now) is None
    await story.end(one, "stopped", "worker_left")
    assert await handed(story.store, third.id, "w1", Capacity(100), story.now) is not None


async def test_another_flow_has_a_limit_of_its_own(story):
    await story.lease(await story.run("a", max_concurrent=1))
    await story.lease(await story.run("b", max_concurrent=1))


async def test_a_failure_that_is_not_retryable_is_not_retried(story):
    leased = await story.running(retries=3)
    await story.report(leased, story.result("failed", retryable=False))
    assert await story.state(leased.run.id) == "failed"
