"""A call that is asked for alone and gets a worker at once is placed as any other is, by fewer statements."""

from __future__ import annotations

from typing import Any

import pytest

from farhand.errors import StaleLease
from farhand.model import Job
from farhand.resources import Capacity
from farhand.store import Leased, Recorded
from farhand.store import reports as ways
from farhand.store.calls import called_by
from farhand.store.claims import Claim
from farhand_worker import protocol
from tests.contract.conftest import Story

pytestmark = pytest.mark.anyio

DIGEST = "sha256:" + "d" * 64


async def asked(story: Story, parent: Leased, call: protocol.Call, /, *before: Any, **claim: Any) -> Recorded:
    """A job asks for a call; events ``before`` it have it take the long way."""
    foreseen = called_by(parent.job, call, "", story.now)
    claim = {"capacity": Capacity(1), "key": call.key, "run": parent.job.run, "call": foreseen} | claim
    job, lease = parent.job.id, parent.job.lease or 0
    first = story.sent.get((job, lease, "engine"), 0) + 1
    recorded = await story.store.reports.record(
        job, lease, "engine", first, [*before, call], story.now, "w1", [Claim(worker="w2", **claim)]
    )
    story.sent[job, lease, "engine"] = recorded.seq
    return recorded


async def rows(story: Story, job: Job) -> tuple[Any, ...]:
    """All that is written of a call, but for what tells two of them apart."""
    stored = await story.job(job.id)
    assert stored == job
    task = await story.task(job.run, job.key)
    attempts = [attempt for attempt, _ in await story.store.workers.attempts("w2", 0.0, 10)]
    (attempt,) = (attempt for attempt in attempts if attempt.job == job.id)
    apart = {"id", "key", "lease", "number", "placed", "job", "name", "created_at", "queued_at", "leased_at"}
    return tuple(
        {name: getattr(record, name) for name in record.__slots__ if name not in apart}
        for record in (stored, task, attempt)
    )


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"needs": ["a"], "tags": ["b"], "scope": "s", "index": 3},
        {"settings": {"priority": 7, "retries": 2}},
    ],
)
async def test_both_ways_write_the_same(story: Story, fields: dict[str, Any]) -> None:
    parent = await story.running()
    quick = await asked(story, parent, story.call("k1", **fields))
    slow = await asked(story, parent, story.call("k2", **fields), story.log("x"), capacity=Capacity(2))
    one, other = quick.leased[0], slow.leased[0]
    assert one is not None
    assert other is not None
    assert await rows(story, one.job) == await rows(story, other.job)
    assert (quick.changes.streams, quick.changes.enqueued) == (slow.changes.streams, slow.changes.enqueued)
    assert (one.run, one.kept, one.called) == (other.run, other.kept, other.called)
    assert (quick.seqs, slow.seqs) == ((2,), (4,))
    assert [task.number for task in (await story.store.tasks.page(parent.job.run)).items] == [1, 2]


async def test_a_call_that_is_asked_for_alone_goes_the_short_way(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = await story.running()
    monkeypatch.setattr(ways, "apply_events", None)
    assert (await asked(story, parent, story.call("k1"))).leased[0] is not None


async def test_what_its_arguments_name_may_be_read_by_its_worker(story: Story) -> None:
    parent = await story.running()
    call = story.call("k1")
    call.args["text"] = f'["{DIGEST}"]'
    (leased,) = (await asked(story, parent, call)).leased
    assert leased is not None
    assert await story.store.run_blobs.may_read(leased.job.id, leased.job.lease or 0, DIGEST)


async def test_arguments_that_no_store_takes_are_kept_as_those_of_any_call_are(story: Story) -> None:
    parent = await story.running()
    call = story.call("k1")
    call.args["text"] = '["\ud800"]'
    (leased,) = (await asked(story, parent, call)).leased
    assert leased is not None
    assert (await story.job(leased.job.id)).args["text"] == '["\\ud800"]'
    assert leased.job == await story.job(leased.job.id)


async def test_a_call_that_was_foreseen_of_another_job_is_placed_as_it_is_asked_for(story: Story) -> None:
    parent, other = await story.running(), await story.running()
    call = story.call("k1")
    recorded = await asked(story, parent, call, call=called_by(other.job, call, "", story.now))
    (leased,) = recorded.leased
    assert leased is not None
    assert (leased.job.parent_job, leased.job.run) == (parent.job.id, parent.job.run)


async def test_a_call_without_room_is_queued(story: Story) -> None:
    parent = await story.running()
    recorded = await asked(story, parent, story.call("k1"), capacity=Capacity(0))
    assert recorded.leased == (None,)
    assert [job.key for job in recorded.changes.enqueued] == ["k1"]


async def test_a_call_of_a_run_that_is_being_cancelled_never_begins(story: Story) -> None:
    parent = await story.running()
    await story.cancel(parent.job.run)
    recorded = await asked(story, parent, story.call("k1"))
    assert recorded.leased == (None,)
    assert [outcome.body["state"] for outcome in recorded.changes.outcomes] == ["cancelled"]


async def test_a_call_that_was_asked_for_before_is_adopted(story: Story) -> None:
    parent = await story.running()
    first = await asked(story, parent, story.call("k1"))
    again = await asked(story, parent, story.call("k1"))
    assert first.leased[0] is not None
    assert again.leased == (None,)
    assert again.changes.enqueued == ()


async def test_a_call_that_was_recorded_is_not_recorded_again(story: Story) -> None:
    parent = await story.running()
    await asked(story, parent, story.call("k1"))
    story.sent[parent.job.id, parent.job.lease or 0, "engine"] -= 1
    again = await asked(story, parent, story.call("k1"))
    assert again.seqs == (2,)
    assert again.leased == (None,)


async def test_a_stale_lease_asks_for_nothing(story: Story) -> None:
    parent = await story.running()
    await story.end(parent, "lost")
    with pytest.raises(StaleLease):
        await asked(story, parent, story.call("k1"))


async def test_events_that_are_missing_before_it_are_missed(story: Story) -> None:
    parent = await story.running()
    story.sent[parent.job.id, parent.job.lease or 0, "engine"] += 1
    with pytest.raises(protocol.ProtocolViolation, match="are missing"):
        await asked(story, parent, story.call("k1"))
