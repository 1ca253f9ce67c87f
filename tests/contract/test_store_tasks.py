"""Task runs, kept outcomes, and calls that are placed on other machines."""

from __future__ import annotations

import pytest

from farhand.errors import StaleLease
from farhand_worker import protocol

pytestmark = pytest.mark.anyio


async def test_a_task_is_running_then_has_its_outcome(story):
    leased = await story.running()
    await story.report(leased, story.began("a"))
    task = await story.task(leased.run.id, "a")
    assert (task.state, task.worker, task.job, task.number) == ("running", "w1", leased.job.id, 1)
    await story.report(leased, story.checkpoint("a", attempts=2, index=3, scope="s"))
    task = await story.task(leased.run.id, "a")
    assert (task.state, task.attempts, task.index, task.scope) == ("completed", 2, 3, "s")
    assert task.value == {"enc": "json", "text": '"a"'}


async def test_tasks_are_numbered_as_they_are_first_seen_and_paged(story):
    leased = await story.running()
    await story.report(leased, story.began("b"), story.began("a"), story.checkpoint("b"))
    await story.report(leased, story.checkpoint("c"), story.checkpoint("a"))
    page = await story.store.tasks.page(leased.run.id, 0, 2)
    assert [(task.number, task.key) for task in page.items] == [(1, "b"), (2, "a")]
    assert page.next == "2"
    page = await story.store.tasks.page(leased.run.id, 2, 2)
    assert [(task.number, task.key) for task in page.items] == [(3, "c")]
    assert page.next is None


async def test_tasks_are_counted_by_state_and_paged_within_one(story):
    leased = await story.running()
    await story.report(
        leased,
        *(story.checkpoint(key, "failed" if key in "bd" else "completed") for key in "abcd"),
        story.began("e"),
    )
    tasks = story.store.tasks
    assert await tasks.tally(leased.run.id) == {"running": 1, "completed": 2, "failed": 2}
    assert await tasks.tally(leased.run.id, 3) == {"running": 1, "failed": 1}
    assert await tasks.tally("none") == {}
    page = await tasks.page(leased.run.id, 0, 1, state="failed")
    assert ([task.key for task in page.items], page.next) == (["b"], "2")
    page = await tasks.page(leased.run.id, 2, 1, state="failed")
    assert ([task.key for task in page.items], page.next) == (["d"], None)


async def test_a_kept_outcome_is_final(story):
    leased = await story.running()
    await story.report(leased, story.checkpoint("a"))
    await story.report(leased, story.checkpoint("a", "failed"), story.began("a"))
    assert (await story.task(leased.run.id, "a")).state == "completed"


async def test_the_next_attempt_gets_the_kept_outcomes_and_makes_the_other_calls_again(story):
    leased = await story.running()
    await story.report(
        leased,
        story.checkpoint("done"),
        story.checkpoint("failed", "failed"),
        story.checkpoint("unkept", kept=False),
        story.began("open"),
    )
    await story.end(leased, "lost")
    assert (await story.task(leased.run.id, "open")).state == "queued"
    again = await story.running(leased.job)
    assert again.kept == 2
    kept = await story.store.tasks.kept(leased.job.id)
    assert [task.key for task in kept] == ["done", "failed"]
    assert [task.key for task in await story.store.tasks.kept(leased.job.id, kept[0].number, 1)] == ["failed"]
    await story.report(again, story.began("unkept"), story.began("open"))
    assert (await story.task(leased.run.id, "unkept")).state == "running"
    await story.report(again, story.checkpoint("unkept"), story.checkpoint("open"), story.result())
    assert len(await story.store.tasks.kept(leased.job.id)) == 4


async def test_a_paid_retry_makes_failed_calls_again(story):
    leased = await story.running(retries=1)
    await story.report(leased, story.checkpoint("good"), story.checkpoint("bad", "failed"))
    await story.report(leased, story.result("failed"))
    again = await story.running(leased.job)
    assert again.kept == 1
    assert [task.key for task in await story.store.tasks.kept(leased.job.id)] == ["good"]
    await story.report(again, story.checkpoint("bad"))
    assert (await story.task(leased.run.id, "bad")).state == "completed"


async def test_a_new_checkpoint_resets_the_crash_count(story):
    job = await story.run(crash_retries=1)
    for number in range(4):
        leased = await story.running(job)
        await story.report(leased, story.checkpoint(f"step{number}"))
        await story.end(leased, "crashed")
    assert await story.state(job.run) == "queued"
    assert (await story.job(job.id)).crashes == 1


async def test_an_outcome_that_was_known_or_is_not_kept_is_no_progress(story):
    job = await story.run(crash_retries=1)
    for _ in range(2):
        leased = await story.running(job)
        await story.report(leased, story.checkpoint("same", kept=False))
        await story.end(leased, "crashed")
    assert await story.state(job.run) == "crashed"


async def test_a_checkpoint_in_the_batch_of_the_crash_counts(story):
    job = await story.run(crash_retries=1)
    for number in range(3):
        leased = await story.running(job)
        await story.report(leased, story.checkpoint(f"step{number}"), story.exit("crashed"))
    assert (await story.job(job.id)).crashes == 1


async def test_tasks_left_open_end_with_their_run(story):
    cancelled, crashed = await story.running(), await story.running(crash_retries=0)
    for leased in (cancelled, crashed):
        await story.report(leased, story.began("a"))
    await story.report(cancelled, story.result("failed"))
    await story.end(crashed, "crashed")
    assert (await story.task(cancelled.run.id, "a")).state == "cancelled"
    assert (await story.task(crashed.run.id, "a")).state == "crashed"


async def test_ten_thousand_checkpoints_are_recorded_once_each(story):
    leased = await story.running()
    for start in range(0, 10_000, 500):
        events = []
        for number in range(start, start + 500):
            events += [story.began(f"k{number}"), story.checkpoint(f"k{number}")]
        await story.report(leased, *events)
    page = await story.store.tasks.page(leased.run.id, 9_990, 100)
    assert [task.number for task in page.items] == list(range(9_991, 10_001))
    await story.end(leased, "lost")
    assert (await story.lease(leased.job)).kept == 10_000


# ---------------------------------------------------------------- placed calls


async def placed(story, leased, key="c", **fields):
    """A call's job, just placed."""
    recorded = await story.report(leased, story.call(key, **fields))
    [job] = recorded.changes.enqueued
    return job


async def test_a_placed_call_is_a_job_of_its_own_and_its_end_is_told_to_its_parent(story):
    parent = await story.running()
    job = await placed(story, parent, settings={"retries": 2, "unknown": 1}, index=4)
    assert (job.kind, job.state, job.key, job.parent_job) == ("call", "queued", "c", parent.job.id)
    assert (job.run, job.bundle, job.age_at) == (parent.run.id, parent.job.bundle, parent.job.age_at)
    assert (job.ask.labels, job.settings.retries, job.entry) == (("gpu",), 2, "m:t")
    task = await story.task(parent.run.id, "c")
    assert (task.state, task.placed, task.job, task.index) == ("queued", job.id, parent.job.id, 4)
    call = await story.running(job, "w2")
    task = await story.task(parent.run.id, "c")
    assert (task.state, task.worker) == ("running", "w2")
    recorded = await story.report(call, story.result())
    [outcome] = recorded.changes.outcomes
    assert (outcome.parent_job, outcome.key) == (parent.job.id, "c")
    assert protocol.Checkpoint(**outcome.body).state == "completed"
    assert outcome.body["value"] == {"enc": "json", "text": "1"}
    assert await story.state(parent.run.id) == "running"
    assert [task.key for task in await story.store.tasks.placed(parent.job.id)] == ["c"]


async def test_the_attempts_of_a_call_are_not_attempts_of_its_run(story):
    parent = await story.running()
    await story.running(await placed(story, parent))
    assert len(await story.store.runs.attempts(parent.run.id)) == 1


async def test_a_call_that_fails_for_good_tells_its_parent_the_error(story):
    parent = await story.running()
    job = await placed(story, parent, settings={"retries": 1})
    error = {"type": "ValueError", "module": "builtins", "message": "no", "traceback": "…"}
    first = await story.running(job)
    recorded = await story.report(first, story.result("failed", error=error))
    assert [again.id for again in recorded.changes.enqueued] == [job.id]
    assert (await story.task(parent.run.id, "c")).state == "queued"
    second = await story.running(job)
    recorded = await story.report(second, story.result("failed", error=error))
    [outcome] = recorded.changes.outcomes
    assert (outcome.body["state"], outcome.body["error"], outcome.body["attempts"]) == ("failed", error, 2)


@pytest.mark.parametrize(
    ("state", "name"),
    [("lost", "WorkerLost"), ("crashed", "TaskFailed"), ("timeout", "TimedOut"), ("cancelled", "Cancelled")],
)
async def test_a_call_that_ends_without_an_exception_gets_one_that_says_how(story, state, name):
    parent = await story.running()
    call = await story.running(await placed(story, parent, settings={"crash_retries": 0}))
    changes = await story.end(call, state, "", "as it was")
    [outcome] = changes.outcomes
    assert outcome.body["error"]["type"] == name
    assert outcome.body["error"]["message"] == "as it was"


async def test_the_next_attempt_of_the_parent_adopts_an_open_call(story):
    parent = await story.running()
    job = await placed(story, parent)
    call = await story.running(job, "w2")
    await story.end(parent, "lost")
    assert (await story.job(job.id)).state == "running"
    again = await story.running(parent.job)
    recorded = await story.report(again, story.call("c"))
    assert recorded.changes.enqueued == ()
    assert recorded.changes.outcomes == ()
    recorded = await story.report(call, story.result())
    [outcome] = recorded.changes.outcomes
    assert outcome.parent_job == again.job.id


async def test_the_next_attempt_of_the_parent_takes_the_outcome_of_an_ended_call(story):
    parent = await story.running()
    call = await story.running(await placed(story, parent))
    await story.report(call, story.result())
    await story.end(parent, "lost")
    again = await story.running(parent.job)
    assert again.kept == 1
    recorded = await story.report(again, story.call("c"))
    assert recorded.changes.enqueued == ()
    [outcome] = recorded.changes.outcomes
    assert (outcome.key, outcome.body["state"]) == ("c", "completed")


async def test_a_paid_retry_places_a_failed_call_again(story):
    parent = await story.running(retries=1)
    first = await placed(story, parent)
    await story.report(await story.running(first), story.result("failed"))
    await story.report(parent, story.result("failed"))
    again = await story.running(parent.job)
    second = await placed(story, again)
    assert second.id != first.id
    task = await story.task(parent.run.id, "c")
    assert (task.state, task.number, task.placed) == ("queued", 1, second.id)
    recorded = await story.report(await story.running(second), story.result())
    assert [outcome.body["state"] for outcome in recorded.changes.outcomes] == ["completed"]


async def test_a_call_is_accepted_only_while_its_parent_runs_under_that_lease(story):
    leased = await story.lease(await story.run())
    with pytest.raises(StaleLease):
        await story.report(leased, story.call("c"))
    await story.end(leased, "lost")
    await story.running(leased.job)
    with pytest.raises(StaleLease):
        await story.report(leased, story.call("c"))
    assert (await story.store.tasks.page(leased.run.id)).items == []


async def test_a_call_whose_ask_is_no_ask_is_the_peers_fault(story):
    leased = await story.running()
    odd = protocol.Call("c", "t", "m:t", {}, {"labels": 7}, 1.0)
    with pytest.raises(protocol.ProtocolViolation):
        await story.report(leased, odd)


async def test_the_end_of_a_run_ends_its_open_calls(story):
    parent = await story.running()
    waiting = await placed(story, parent, "waiting")
    live = await story.running(await placed(story, parent, "live"), "w2")
    recorded = await story.report(parent, story.result())
    assert recorded.changes.dequeued == (waiting.id,)
    assert [(job.id, job.worker, job.cancelling) for job in recorded.changes.cancel] == [
        (live.job.id, "w2", True)
    ]
    assert (await story.job(waiting.id)).state == "ended"
    assert (await story.task(parent.run.id, "waiting")).state == "cancelled"
    await story.end(live, "lost")
    assert (await story.job(live.job.id)).state == "ended"
    assert (await story.task(parent.run.id, "live")).state == "cancelled"
    assert await story.state(parent.run.id) == "completed"
    assert await story.store.jobs.held() == []
    assert await story.store.jobs.queued() == []


async def test_cancelling_a_run_cancels_what_it_placed(story):
    parent = await story.running()
    waiting = await placed(story, parent, "waiting")
    live = await story.running(await placed(story, parent, "live"), "w2")
    changes = await story.cancel(parent.run.id)
    assert {job.id for job in changes.cancel} == {parent.job.id, live.job.id}
    assert changes.dequeued == (waiting.id,)
    recorded = await story.report(parent, story.call("late"))
    assert recorded.changes.enqueued == ()
    assert [outcome.body["state"] for outcome in recorded.changes.outcomes] == ["cancelled"]


async def test_a_call_that_ends_takes_the_calls_it_placed_with_it(story):
    parent = await story.running()
    call = await story.running(await placed(story, parent, "outer"), "w2")
    inner = await placed(story, call, "inner", scope="outer")
    sibling = await placed(story, parent, "sibling")
    recorded = await story.report(call, story.result())
    assert recorded.changes.dequeued == (inner.id,)
    assert (await story.job(sibling.id)).state == "queued"


async def test_a_call_placed_and_given_up_in_one_batch_was_never_in_the_queue(story):
    parent = await story.running()
    recorded = await story.report(parent, story.call("c"), story.result())
    assert recorded.changes.enqueued == ()
    assert recorded.changes.dequeued == ()
    assert await story.store.jobs.queued() == []


async def test_two_events_of_one_call_make_one_job(story):
    parent = await story.running()
    await placed(story, parent)
    recorded = await story.report(parent, story.call("c"))
    assert recorded.changes.enqueued == ()
    assert len(await story.store.jobs.queued()) == 1
