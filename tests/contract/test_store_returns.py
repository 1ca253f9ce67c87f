"""Calls and runs that end as most do are recorded together, and are recorded as any other end is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from farhand.errors import Conflict, StaleLease
from farhand.model import Hook
from farhand.resources import Capacity
from farhand.store import reports as ways
from farhand.store.changes import Leased
from farhand.store.claims import Claim
from farhand.store.reports import Report
from farhand_worker import protocol
from tests.contract.conftest import Story

pytestmark = pytest.mark.anyio

STARTED = protocol.Started(1000.5, 42, "3.11.7", "host1", "sha256:env")
DIGEST = "sha256:" + "d" * 64


async def called(story: Story, count: int = 3, **fields: Any) -> list[Leased]:
    """Calls of a run, each handed to a worker."""
    parent = await story.running()
    calls = [story.call(f"k{number}", index=number, **fields) for number in range(count)]
    recorded = await story.report(parent, *calls)
    claims = [Claim("w2", Capacity(count), job.id) for job in recorded.changes.enqueued]
    return [made for made in await story.store.jobs.lease(claims, story.now) if made is not None]


def report(leased: Leased, *events: Any, first: int = 1, lease: int | None = None) -> Report:
    return Report(leased.job.id, lease or leased.job.lease or 0, "engine", first, list(events))


def shown(task: Any) -> Any:
    return (task.state, task.started_at, task.ended_at, task.attempts, task.kept, task.value, task.error)


async def test_ends_that_come_together_are_as_each_would_have_been(story: Story) -> None:
    end = story.result(value={"enc": "json", "text": "7"}, message="well")
    slowly, *together = await called(story)
    await story.report(slowly, STARTED)
    one = await story.report(slowly, end)
    several = await story.store.reports.record_all(
        [report(each, STARTED, end) for each in together], story.now
    )
    assert several.seqs == (2, 2)
    outcomes = [one.changes.outcomes[0], *several.changes.outcomes]
    assert [outcome.body["index"] for outcome in outcomes] == [0, 1, 2]
    bodies = [{**outcome.body, "key": "", "name": "", "index": 0} for outcome in outcomes]
    assert bodies == [bodies[0]] * 3
    run = slowly.job.run
    first, *others = [await story.task(run, f"k{number}") for number in range(3)]
    assert [shown(task) for task in others] == [shown(first)] * 2
    jobs = [await story.job(each.job.id) for each in (slowly, *together)]
    assert [(job.state, job.lease, job.worker, job.started_at) for job in jobs] == [
        ("ended", None, None, 1000.5)
    ] * 3
    attempts = [
        attempt
        for attempt, _ in await story.store.workers.attempts("w2", 0.0, 10)
        if attempt.job != slowly.job.id
    ]
    assert {(attempt.outcome, attempt.reason, attempt.message, attempt.host) for attempt in attempts} == {
        ("completed", "completed", "well", "host1")
    }
    assert sorted(several.changes.released) == sorted(
        (each.job.id, each.job.lease, "w2") for each in together
    )


async def test_an_end_that_comes_alone_is_as_those_that_come_together(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = story.result(value={"enc": "json", "text": f'"{DIGEST}"'}, message="well")
    alone, *together = await called(story)
    several = await story.store.reports.record_all(
        [report(each, STARTED, end) for each in together], story.now, "w2"
    )
    monkeypatch.setattr(ways, "_record_together", None)
    one = await story.store.reports.record_all([report(alone, STARTED, end)], story.now, "w2")
    monkeypatch.undo()
    assert one.seqs == (2,)
    assert one.changes.released == ((alone.job.id, alone.job.lease, "w2"),)
    assert one.changes.streams == several.changes.streams
    bodies = [
        {**outcome.body, "key": "", "name": "", "index": 0}
        for outcome in (*one.changes.outcomes, *several.changes.outcomes)
    ]
    assert bodies == [bodies[0]] * 3
    run = alone.job.run
    first, *others = [await story.task(run, f"k{number}") for number in range(3)]
    assert [shown(task) for task in others] == [shown(first)] * 2
    jobs = [await story.job(each.job.id) for each in (alone, *together)]
    assert {(job.state, job.lease, job.worker, job.started_at) for job in jobs} == {
        ("ended", None, None, 1000.5)
    }
    attempts = [attempt for attempt, _ in await story.store.workers.attempts("w2", 0.0, 10)]
    assert len({(a.outcome, a.reason, a.message, a.host, a.started_at, a.ended_at) for a in attempts}) == 1
    assert await story.store.reports.recorded(alone.job.id, alone.job.lease or 0) == {"engine": 2}
    assert (await story.store.reports.record_all([report(alone, STARTED, end)], story.now, "w2")).seqs == (2,)


async def test_what_was_said_meanwhile_is_kept(story: Story) -> None:
    (call,) = await called(story, 1)
    events = [story.log("line"), protocol.Metric(1000.6, {"loss": 0.5})]
    recorded = await story.store.reports.record_all(
        [report(call, STARTED, *events, story.result(value={"enc": "json", "text": DIGEST}))], story.now
    )
    assert recorded.seqs == (4,)
    assert recorded.changes.streams == (call.job.run,)
    lines = await story.store.logs.page(call.job.run)
    assert [line.text for line in lines.items] == ["line"]
    assert [point.values for point in (await story.store.metrics.page(call.job.run)).items] == [{"loss": 0.5}]


async def test_a_call_has_one_open_job_whatever_an_engine_says_of_its_outcome(story: Story) -> None:
    parent = await story.running()
    await story.report(parent, story.call("k"))
    await story.report(parent, story.began("k"), story.checkpoint("k", "failed", kept=False))
    with pytest.raises(Conflict, match="has a job that has not ended"):
        await story.report(parent, story.call("k"))
    assert [job.key for job in await story.store.jobs.queued()] == ["k"]


async def test_an_end_that_was_recorded_is_not_recorded_again(story: Story) -> None:
    (call,) = await called(story, 1)
    frame = [report(call, STARTED, story.result())]
    await story.store.reports.record_all(frame, story.now)
    again = await story.store.reports.record_all(frame, story.now)
    assert again.seqs == (2,)
    assert again.changes.outcomes == ()


async def test_the_end_of_a_call_that_has_begun_is_told_with_the_start_once_more(story: Story) -> None:
    (call,) = await called(story, 1)
    await story.store.reports.record_all([report(call, STARTED)], story.now)
    recorded = await story.store.reports.record_all([report(call, STARTED, story.result())], story.now)
    assert recorded.seqs == (2,)
    assert [outcome.key for outcome in recorded.changes.outcomes] == ["k0"]


@pytest.mark.parametrize(("lease", "worker"), [(999, None), (None, "w9")])
async def test_none_of_several_is_recorded_where_one_is_not_believed(
    story: Story, lease: int | None, worker: str | None
) -> None:
    good, bad = await called(story, 2)
    frame = [report(good, STARTED, story.result()), report(bad, STARTED, story.result(), lease=lease)]
    with pytest.raises(StaleLease):
        await story.store.reports.record_all(frame, story.now, worker)
    assert (await story.job(good.job.id)).state == "leased"


async def test_a_call_that_is_being_cancelled_may_still_have_completed(story: Story) -> None:
    (call,) = await called(story, 1)
    await story.cancel(call.job.run)
    await story.store.reports.record_all([report(call, STARTED, story.result())], story.now)
    assert (await story.task(call.job.run, "k0")).state == "completed"


async def test_a_call_and_the_end_of_another_in_one_frame(story: Story) -> None:
    """What is placed is written before the run that placed it ends, and ends with it."""
    parent = await story.running()
    recorded = await story.report(parent, story.call("a"))
    (made,) = await story.store.jobs.lease(
        [Claim("w2", Capacity(1), recorded.changes.enqueued[0].id)], story.now
    )
    assert made is not None
    frames = [
        report(made, STARTED, story.result()),
        Report(parent.job.id, parent.job.lease or 0, "engine", 3, [story.call("b"), story.result()]),
    ]
    recorded = await story.store.reports.record_all(frames, story.now)
    assert recorded.seqs == (2, 4)
    assert await story.state(parent.job.run) == "completed"
    assert (await story.task(parent.job.run, "a")).state == "completed"
    assert (await story.task(parent.job.run, "b")).state == "cancelled"
    assert recorded.changes.enqueued == ()


async def test_a_call_of_the_same_key_twice_in_one_report_is_one_call(story: Story) -> None:
    parent = await story.running()
    recorded = await story.report(parent, story.call("a"), story.call("a"), story.call("b"))
    assert [job.key for job in recorded.changes.enqueued] == ["a", "b"]
    numbers = [(await story.task(parent.job.run, key)).number for key in "ab"]
    assert numbers == [1, 2]


async def test_calls_are_numbered_in_the_order_in_which_they_were_made(story: Story) -> None:
    parent = await story.running()
    events = [story.call("a"), story.began("t"), story.call("b"), story.call("c"), story.checkpoint("u")]
    await story.report(parent, *events)
    page = await story.store.tasks.page(parent.job.run)
    assert [(task.key, task.number) for task in page.items] == [
        ("a", 1), ("t", 2), ("b", 3), ("c", 4), ("u", 5),
    ]  # fmt: skip


async def test_many_calls_and_many_ends_cost_few_statements(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = await story.running()
    if story.store.database.dialect != "sqlite":
        return
    ran: list[str] = []
    story.store.database._writing.set_trace_callback(ran.append)
    recorded = await story.report(parent, *[story.call(f"k{number:02}") for number in range(20)])
    asked = len([sql for sql in ran if not sql.startswith("INSERT INTO")])
    jobs = list(recorded.changes.enqueued)
    claims = [Claim("w2", Capacity(1), job.id, follows=number > 0) for number, job in enumerate(jobs)]
    made = [each for each in await story.store.jobs.lease(claims, story.now) if each is not None]
    ran.clear()
    await story.store.reports.record_all([report(each, STARTED, story.result()) for each in made], story.now)
    story.store.database._writing.set_trace_callback(None)
    assert len(made) == 20
    assert asked < 10
    assert len([sql for sql in ran if sql.startswith("SELECT")]) == 1


async def begun(story: Story, count: int, **settings: Any) -> list[Leased]:
    """Runs, each handed to a worker."""
    jobs = [await story.run(**settings) for _ in range(count)]
    claims = [Claim("w2", Capacity(100), job.id) for job in jobs]
    return [made for made in await story.store.jobs.lease(claims, story.now) if made is not None]


async def told(story: Story, leased: Leased) -> list[Any]:
    """All that the store has of a run, but for ids and when it was asked for."""
    run = await story.store.runs.get(leased.run.id)
    assert run is not None
    job = await story.job(leased.job.id)
    (attempt,) = await story.store.runs.attempts(run.id)
    events = (await story.store.events.page(run=run.id)).items
    return [
        replace(run, id="", created_at=0.0),
        replace(job, id="", run="", age_at=0.0, created_at=0.0, queued_at=0.0),
        replace(attempt, lease=0, job="", run=""),
        [(event.kind, event.message, event.worker, event.details) for event in events],
        [line.text for line in (await story.store.logs.page(run.id)).items],
    ]


PLAIN = protocol.Started(1000.5, 42, "3.11.7", "host1", environment="sha256:env")


@pytest.mark.parametrize("started", [PLAIN, STARTED], ids=["plain", "named"])
async def test_runs_that_end_together_are_as_each_would_have_been(story: Story, started: Any) -> None:
    end = story.result(value={"enc": "json", "text": "7"}, message="well")
    slowly, *together = await begun(story, 3)
    await story.report(slowly, started)
    one = await story.store.reports.record_all([report(slowly, story.log("x"), end, first=2)], story.now)
    several = await story.store.reports.record_all(
        [report(each, started, story.log("x"), end) for each in together], story.now, "w2"
    )
    assert several.seqs == (3, 3)
    expected = await told(story, slowly)
    for each in together:
        assert await told(story, each) == expected
        assert {run.id: run for run in several.changes.runs}[each.run.id] == await story.store.runs.get(
            each.run.id
        )
    assert sorted(several.changes.released) == sorted(
        (each.job.id, each.job.lease, "w2") for each in together
    )
    assert sorted(several.changes.streams) == sorted(each.run.id for each in together)
    assert one.changes.streams == (slowly.run.id,)
    again = await story.store.reports.record_all([report(together[0], started, end)], story.now, "w2")
    assert (again.seqs, again.changes.runs) == ((3,), ())


async def test_a_run_that_is_not_as_most_takes_the_longer_way(story: Story) -> None:
    hooks = (Hook("completed", 0, "tell"),)
    cancelled, plain = await begun(story, 2)
    (hooked,) = await begun(story, 1, hooks=hooks)
    await story.store.runs.cancel(cancelled.run.id, story.now)
    frame = [report(each, STARTED, story.result()) for each in (cancelled, hooked, plain)]
    recorded = await story.store.reports.record_all(frame, story.now, "w2")
    assert recorded.seqs == (2, 2, 2)
    assert {await story.state(each.run.id) for each in (cancelled, hooked, plain)} == {"completed"}
    assert [job.kind for job in recorded.changes.enqueued] == ["hook"]
    with pytest.raises(StaleLease):
        await story.store.reports.record_all(
            [report(plain, STARTED, story.log("x"), story.result())], story.now, "w2"
        )


async def test_the_end_of_a_run_is_believed_of_its_worker_alone(story: Story) -> None:
    made = await begun(story, 2)
    frame = [report(each, STARTED, story.result()) for each in made]
    with pytest.raises(StaleLease):
        await story.store.reports.record_all(frame, story.now, "w3")
    assert {await story.state(each.run.id) for each in made} == {"starting"}


async def test_many_ends_of_runs_cost_few_statements(story: Story) -> None:
    made = await begun(story, 20)
    if story.store.database.dialect != "sqlite":
        return
    ran: list[str] = []
    story.store.database._writing.set_trace_callback(ran.append)
    await story.store.reports.record_all([report(each, STARTED, story.result()) for each in made], story.now)
    story.store.database._writing.set_trace_callback(None)
    assert len([sql for sql in ran if sql.startswith("SELECT")]) == 1
    assert len([sql for sql in ran if sql.startswith("INSERT INTO events")]) == 1
