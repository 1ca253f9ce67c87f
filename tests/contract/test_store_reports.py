"""Reports: recorded once, only under a live lease, and concluded by the lifecycle alone."""

from __future__ import annotations

import math

import pytest

from farhand.errors import StaleLease
from farhand.model import RetryDelay
from farhand_worker import protocol

pytestmark = pytest.mark.anyio


async def test_a_run_goes_from_queued_to_completed(story):
    leased = await story.running()
    job = await story.job(leased.job.id)
    assert (job.state, await story.state(leased.run.id)) == ("running", "running")
    recorded = await story.report(leased, story.log("hi"), story.result())
    assert recorded.seq == 3
    [run] = recorded.changes.runs
    assert (run.state, run.result, run.worker) == ("completed", {"enc": "json", "text": "1"}, "w1")
    assert run.started_at is not None
    assert run.ended_at is not None
    assert recorded.changes.released == ((leased.job.id, leased.job.lease, "w1"),)
    assert recorded.changes.streams == (leased.run.id,)
    [attempt] = await story.store.runs.attempts(leased.run.id)
    assert (attempt.outcome, attempt.host, attempt.python, attempt.pid) == (
        "completed",
        "host1",
        "3.11.7",
        42,
    )
    job = await story.job(leased.job.id)
    assert (job.state, job.lease) == ("ended", None)


async def test_events_sent_twice_are_recorded_once(story):
    leased = await story.running()
    lease, job = leased.job.lease, leased.job.id
    events = [story.log("one"), story.log("two"), story.log("three")]
    for first, part in ((2, events[:2]), (2, events), (3, events[1:]), (2, events)):
        recorded = await story.store.reports.record(job, lease, "engine", first, part, story.now)
    assert recorded.seq == 4
    page = await story.store.logs.page(leased.run.id)
    assert [(line.number, line.text) for line in page.items] == [(1, "one"), (2, "two"), (3, "three")]
    assert await story.store.reports.recorded(job, lease) == {"engine": 4}


async def test_a_gap_between_events_is_refused_and_nothing_of_it_kept(story):
    leased = await story.running()
    with pytest.raises(protocol.ProtocolViolation, match="2 to 4"):
        await story.store.reports.record(
            leased.job.id, leased.job.lease, "engine", 5, [story.result()], story.now
        )
    assert await story.state(leased.run.id) == "running"


async def test_events_are_numbered_from_one(story):
    leased = await story.running()
    with pytest.raises(protocol.ProtocolViolation):
        await story.store.reports.record(
            leased.job.id, leased.job.lease, "agent", 0, [story.log("a"), story.log("b")], story.now
        )


async def test_each_source_counts_its_own_events(story):
    leased = await story.running()
    await story.report(leased, story.log("from outside"), source=protocol.AGENT)
    await story.report(leased, story.log("from inside"))
    recorded = await story.store.reports.recorded(leased.job.id, leased.job.lease)
    assert recorded == {"engine": 2, "agent": 1}


async def test_a_stale_lease_is_refused_but_what_it_recorded_before_is_acknowledged(story):
    """B004: an attempt that was given up cannot change what came after it."""
    old = await story.running()
    await story.end(old, "lost")
    new = await story.running(old.job)
    with pytest.raises(StaleLease):
        await story.report(old, story.result("failed"))
    recorded = await story.store.reports.record(
        old.job.id, old.job.lease, "engine", 1, [protocol.Started(1.0, 1, "3.9")], story.now
    )
    assert recorded.seq == 1
    assert not await story.store.reports.is_current(old.job.id, old.job.lease)
    assert await story.store.reports.is_current(new.job.id, new.job.lease)
    await story.report(new, story.result())
    assert await story.state(old.run.id) == "completed"


async def test_a_job_that_nobody_knows_is_a_stale_lease(store):
    with pytest.raises(StaleLease):
        await store.reports.record("none", 1, "engine", 1, [protocol.Log(1.0, "x")], 1.0)
    assert await store.reports.recorded("none", 1) == {}
    assert not await store.reports.is_current("none", 1)


async def test_nothing_is_believed_after_the_result(story):
    """B004: terminal states are final."""
    leased = await story.running()
    await story.report(leased, story.result())
    for late in (story.log("late"), story.exit("crashed"), story.result("failed")):
        with pytest.raises(StaleLease):
            await story.report(leased, late)
    assert await story.end(leased, "lost") is None
    assert await story.state(leased.run.id) == "completed"
    assert (await story.store.logs.page(leased.run.id)).items == []


async def test_a_batch_that_goes_on_after_its_result_is_refused_whole(story):
    leased = await story.running()
    with pytest.raises(protocol.ProtocolViolation):
        await story.report(leased, story.result(), story.log("late"))
    assert await story.state(leased.run.id) == "running"


@pytest.mark.parametrize(
    "event",
    [
        protocol.Result("maybe", 1.0),
        protocol.Exit(1.0, "bored", ""),
        protocol.Checkpoint("k", "t", "maybe", 1.0, 2.0),
    ],
)
async def test_an_end_that_there_is_not_is_refused(story, event):
    leased = await story.running()
    with pytest.raises(protocol.ProtocolViolation):
        await story.report(leased, event)
    assert await story.state(leased.run.id) == "running"


async def test_an_exception_with_retries_is_queued_again_later_but_as_old_as_it_was(story):
    leased = await story.running(retries=1, retry_delay=RetryDelay((30.0,)))
    recorded = await story.report(leased, story.result("failed", message="boom"))
    [job] = recorded.changes.enqueued
    assert (job.state, job.retries_used, job.lease, job.worker) == ("queued", 1, None, None)
    assert job.not_before == story.now + 30.0
    assert job.age_at == leased.job.age_at
    [run] = recorded.changes.runs
    assert (run.state, run.reason) == ("queued", "retrying")
    again = await story.running(leased.job)
    assert again.job.attempt == 2
    error = {"type": "ValueError", "module": "builtins", "message": "boom", "traceback": ""}
    recorded = await story.report(again, story.result("failed", message="boom", error=error))
    [run] = recorded.changes.runs
    assert (run.state, run.reason, run.message, run.error) == ("failed", "exception", "boom", error)
    outcomes = [attempt.outcome for attempt in await story.store.runs.attempts(run.id)]
    assert outcomes == ["failed", "failed"]


async def test_a_crash_is_run_again_under_the_same_id_until_its_budget_is_used(story):
    job = await story.run(crash_retries=1)
    leased = await story.running(job)
    recorded = await story.report(leased, story.exit("crashed"), source=protocol.AGENT)
    assert [j.crashes for j in recorded.changes.enqueued] == [1]
    assert recorded.changes.runs[0].reason == "engine_died"
    leased = await story.running(job)
    recorded = await story.report(leased, story.exit("crashed", "signal 11"), source=protocol.AGENT)
    [run] = recorded.changes.runs
    assert (run.id, run.state, run.reason, run.message) == (
        job.run,
        "crashed",
        "engine_died",
        "the engine ended: signal 11",
    )


async def test_a_lost_worker_without_crash_retries_ends_the_run_as_crashed(story):
    leased = await story.running(crash_retries=0)
    changes = await story.end(leased, "lost", "", "worker went away mid-call")
    [run] = changes.runs
    assert (run.state, run.reason, run.message) == ("crashed", "worker_lost", "worker went away mid-call")


async def test_a_lost_worker_before_user_code_costs_nothing(story):
    leased = await story.lease(await story.run(crash_retries=0))
    changes = await story.end(leased, "lost")
    [job] = changes.enqueued
    assert (job.crashes, job.not_before) == (0, 0.0)


async def test_a_timeout_uses_retries_and_is_a_failure(story):
    leased = await story.running()
    recorded = await story.report(leased, story.exit("timeout", "took over 2 s"), source=protocol.AGENT)
    [run] = recorded.changes.runs
    assert (run.state, run.reason) == ("failed", "timeout")


async def test_a_stopped_engine_costs_nothing(story):
    leased = await story.running(crash_retries=0)
    recorded = await story.report(leased, story.exit("stopped"), source=protocol.AGENT)
    [job] = recorded.changes.enqueued
    assert (job.crashes, job.retries_used, job.not_before) == (0, 0, 0.0)


async def test_an_engine_that_does_not_start_is_tried_again_ever_more_slowly(story):
    """B018: a hand-off that failed goes back to the queue; nothing is lost and nothing is used up."""
    job = await story.run(crash_retries=0)
    delays = []
    for _ in range(4):
        leased = await story.lease(job)
        recorded = await story.report(leased, story.exit("not_started"), source=protocol.AGENT)
        [again] = recorded.changes.enqueued
        delays.append(max(again.not_before - story.now, 0.0))
    assert delays[0] == 0.0
    assert delays == sorted(delays)
    assert delays[-1] > delays[1] > 0.0
    assert (again.crashes, again.handoffs_failed) == (0, 4)


async def test_a_killed_engine_of_a_cancelling_run_is_cancelled(story):
    leased = await story.running()
    await story.cancel(leased.run.id)
    await story.report(leased, story.exit("crashed"), source=protocol.AGENT)
    assert await story.state(leased.run.id) == "cancelled"


async def test_a_lease_is_ended_by_one_of_two_callers(story):
    leased = await story.running()
    assert await story.end(leased, "stopped") is not None
    assert await story.end(leased, "stopped") is None


async def test_hearing_twice_that_user_code_began_is_harmless(story):
    leased = await story.running()
    await story.report(leased, protocol.Started(1.0, 43, "3.12", "host1"), source=protocol.AGENT)
    assert await story.state(leased.run.id) == "running"


async def test_log_lines_are_numbered_over_all_attempts_and_paged(story):
    leased = await story.running()
    await story.report(leased, *[story.log(f"a{n}") for n in range(5)])
    await story.end(leased, "lost")
    again = await story.running(leased.job)
    await story.report(again, *[story.log(f"b{n}") for n in range(5)])
    seen, after = [], 0
    while True:
        page = await story.store.logs.page(leased.run.id, after, 3)
        assert len(page.items) <= 3
        seen += page.items
        if page.next is None:
            break
        after = int(page.next)
    assert [line.number for line in seen] == list(range(1, 11))
    assert [line.text for line in seen] == [f"a{n}" for n in range(5)] + [f"b{n}" for n in range(5)]
    assert {line.attempt for line in seen if line.text.startswith("b")} == {2}
    assert (await story.store.logs.page(leased.run.id, 10)).items == []


async def test_the_lines_of_a_batch_are_one_row(story):
    leased = await story.running()
    await story.report(leased, *[story.log(str(n)) for n in range(300)])
    count = await story.store.database.read(
        lambda connection: connection.execute("SELECT count(*) FROM logs").fetchone()[0]
    )
    assert count == 1


async def test_text_that_is_no_unicode_is_kept_as_escapes(story):
    leased = await story.running()
    await story.report(leased, story.log("bad \ud800 \x00 text"), story.checkpoint("k\udfff"))
    [line] = (await story.store.logs.page(leased.run.id)).items
    assert line.text == "bad \\ud800 \x00 text"
    recorded = await story.report(
        leased, story.result("failed", message="\ud800", error={"message": "\ud800"})
    )
    assert recorded.changes.runs[0].message == "\\ud800"


async def test_metric_points_come_back_in_order_not_a_number_included(story):
    leased = await story.running()
    await story.report(
        leased,
        protocol.Metric(1.0, {"loss": 0.5, "acc": 1}),
        protocol.Metric(2.0, {"loss": math.nan}, "k"),
        protocol.Metric(3.0, {"loss": math.inf}),
    )
    await story.report(leased, protocol.Metric(4.0, {"loss": 0.1}))
    page = await story.store.metrics.page(leased.run.id, 0, 3)
    assert [point.number for point in page.items] == [1, 2, 3]
    assert page.items[0].values == {"loss": 0.5, "acc": 1}
    assert math.isnan(page.items[1].values["loss"])
    assert page.items[2].values["loss"] == math.inf
    assert page.next == "3"
    assert [point.number for point in (await story.store.metrics.page(leased.run.id, 3)).items] == [4]


async def test_artifacts_are_listed_with_their_run(story):
    leased = await story.running()
    await story.report(leased, protocol.Artifact("a.csv", "sha256:1", 7, 5.0, "text/csv", "k"))
    [artifact] = await story.store.artifacts.list(leased.run.id)
    assert (artifact.name, artifact.digest, artifact.size, artifact.media_type, artifact.task) == (
        "a.csv",
        "sha256:1",
        7,
        "text/csv",
        "k",
    )


async def test_a_store_that_is_opened_again_has_all_it_had(open_store, tell):
    first = await open_store()
    story = tell(first)
    leased = await story.running()
    await story.report(leased, story.log("kept"))
    incarnation = first.meta.incarnation()
    await first.close()
    again = await open_store()
    assert again.meta.incarnation() == incarnation
    assert [job.id for job in await again.jobs.held()] == [leased.job.id]
    assert await again.reports.recorded(leased.job.id, leased.job.lease) == {"engine": 2}
    await again.close()


@pytest.mark.parametrize(
    ("end", "settings"),
    [
        (("result", "completed"), {}),
        (("result", "failed"), {}),
        (("result", "failed"), {"retries": 1}),
        (("result", "cancelled"), {}),
        (("exit", "crashed"), {}),
        (("exit", "crashed"), {"crash_retries": 1}),
        (("exit", "stopped"), {}),
    ],
)
@pytest.mark.parametrize("crashes", [0, 1])
async def test_a_start_and_an_end_in_one_report_leave_what_they_leave_in_two(story, end, settings, crashes):
    """Also with a kept outcome between them, after an attempt that crashed."""
    left = []
    for together in (True, False):
        job = await story.run(**settings)
        for _ in range(crashes):
            await story.end(await story.running(job), "crashed")
        leased = await story.lease(job)
        now = story.now
        events = [protocol.Started(now, 42, "3.11.7", "host1"), story.checkpoint("a")]
        events += [protocol.Result(end[1], now) if end[0] == "result" else protocol.Exit(now, end[1], "m")]
        for batch in [events] if together else [[event] for event in events]:
            recorded = await story.report(leased, *batch)
        page = await story.store.events.page(run=leased.run.id)
        left.append(_without_ids(await _all_of(story, leased), now, leased, [e.message for e in page.items]))
        assert len(recorded.changes.runs) == 1
    assert left[0] == left[1]


async def _all_of(story, leased):
    run = await story.store.runs.get(leased.run.id)
    return [run, await story.job(leased.job.id), *await story.store.runs.attempts(leased.run.id)]


def _without_ids(records, now, leased, messages):
    """Records of two runs made comparable: ids are taken out, and moments are told from the start."""
    own = {leased.run.id, leased.job.id}
    shown = [
        {
            name: "own" if value in own else round(value - now) if isinstance(value, float) else value
            for name in record.__slots__
            if isinstance(value := getattr(record, name), str | int | float | bool | None)
        }
        for record in records
    ]
    for record in shown:
        for name in ("lease", "age_at", "created_at", "not_before", "queued_at", "leased_at"):
            record.pop(name, None)
    return shown, messages


async def test_a_call_that_starts_and_ends_in_one_report_has_its_outcome(story):
    parent = await story.running()
    recorded = await story.report(parent, story.call("k"))
    [job] = recorded.changes.enqueued
    leased = await story.lease(job)
    recorded = await story.report(leased, protocol.Started(story.now, 1, "3.12", "h"), story.result())
    [outcome] = recorded.changes.outcomes
    assert (outcome.key, outcome.body["state"], outcome.body["started_at"]) == (
        "k",
        "completed",
        story.now - 1,
    )
    assert (await story.task(parent.run.id, "k")).state == "completed"


async def test_the_last_line_of_a_log_says_how_the_engine_ended(story):
    leased = await story.running(crash_retries=0)
    said = "signal 9, possibly out of memory"
    await story.report(leased, story.log("last words"))
    await story.report(leased, protocol.Exit(story.now, "crashed", said, signal=9))
    page = await story.store.logs.page(leased.run.id)
    assert [(line.text, line.level) for line in page.items] == [
        ("last words", "info"),
        (f"the engine ended: {said}", "error"),
    ]
    waiting = await story.running(crash_retries=0)
    await story.report(waiting, protocol.Exit(story.now, "not_started", "no such file"))
    assert (await story.store.logs.page(waiting.run.id)).items == []
