"""Several batches of one job in one frame: of both its spools, and of one of them more than once."""

from __future__ import annotations

import pytest

from farhand.store.reports import Report
from farhand_worker import protocol

pytestmark = pytest.mark.anyio


def batch(leased, source, first, *events):
    return Report(leased.job.id, leased.job.lease, source, first, list(events))


async def test_batches_that_take_turns_are_recorded_in_their_order(story):
    leased = await story.running()  # which has reported that it started
    reports = [
        batch(leased, "engine", 2, story.log("before")),
        batch(leased, "agent", 1, story.log("child 1"), story.log("child 2")),
        batch(leased, "engine", 3, story.log("after")),
        batch(leased, "agent", 3, story.log("child 3")),
        batch(leased, "engine", 4, story.log("last"), story.result()),
    ]
    recorded = await story.store.reports.record_all(reports, story.now, "w1")
    assert recorded.seqs == (2, 2, 3, 3, 5)
    lines = (await story.store.logs.page(leased.run.id)).items
    assert [line.text for line in lines] == ["before", "child 1", "child 2", "after", "child 3", "last"]
    assert await story.state(leased.run.id) == "completed"
    assert await story.store.reports.recorded(leased.job.id, leased.job.lease) == {"engine": 5, "agent": 3}


async def test_a_batch_that_comes_twice_in_one_frame_is_recorded_once(story):
    leased = await story.running()
    one = batch(leased, "engine", 2, story.log("a"), story.log("b"))
    more = batch(leased, "engine", 3, story.log("b"), story.log("c"))
    assert (await story.store.reports.record_all([one, one, more], story.now)).seqs == (3, 3, 4)
    lines = (await story.store.logs.page(leased.run.id)).items
    assert [line.text for line in lines] == ["a", "b", "c"]


async def test_a_batch_before_which_one_is_missing_is_refused_whatever_else_is_in_the_frame(story):
    leased = await story.running()
    reports = [batch(leased, "agent", 1, story.log("a")), batch(leased, "agent", 3, story.log("c"))]
    with pytest.raises(protocol.ProtocolViolation, match="events 2 to 2 of job"):
        await story.store.reports.record_all(reports, story.now)
    assert (await story.store.logs.page(leased.run.id)).items == []
