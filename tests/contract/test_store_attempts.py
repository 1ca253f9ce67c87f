"""An attempt is all in its job until something is heard of it, and is shown and marked all the same."""

from __future__ import annotations

import pytest

from farhand.model import Attempt
from farhand.resources import Capacity
from farhand.store.claims import Claim
from farhand_worker import protocol
from tests.contract.conftest import Story

pytestmark = pytest.mark.anyio

CHECKOUT = "main 0a1b2c3"


async def handed_over(story: Story) -> Attempt:
    """A run's attempt of which nothing was heard yet."""
    job = await story.run()
    claim = Claim("w1", Capacity(9), job.id, git=CHECKOUT)
    (leased,) = await story.store.jobs.lease([claim], story.now)
    assert leased is not None
    (attempt,) = await story.store.runs.attempts(job.run)
    assert attempt.lease == leased.job.lease
    return attempt


async def test_an_attempt_is_shown_before_anything_is_heard_of_it(story: Story) -> None:
    attempt = await handed_over(story)
    assert (attempt.number, attempt.worker, attempt.leased_at) == (1, "w1", story.now)
    assert (attempt.git, attempt.outcome, attempt.started_at) == (CHECKOUT, "", None)
    assert await story.store.workers.attempts("w1", story.now - 1, 10) == [(attempt, "etl")]
    assert await story.store.workers.attempts("w2", story.now - 1, 10) == []


@pytest.mark.parametrize("whole", [True, False], ids=["by one report", "by several"])
async def test_what_it_was_handed_over_with_stays_once_it_is_heard_of(story: Story, whole: bool) -> None:
    before = await handed_over(story)
    events = [protocol.Started(story.now, 42, "3.11.7", "host1"), story.result()]
    for first, part in enumerate([events] if whole else [[event] for event in events], 1):
        await story.store.reports.record(before.job, before.lease, "engine", first, part, story.now)
    (after,) = await story.store.runs.attempts(before.run)
    assert (after.outcome, after.pid, after.started_at) == ("completed", 42, story.now)
    for name in ("lease", "job", "run", "number", "worker", "leased_at", "fingerprint", "git"):
        assert getattr(after, name) == getattr(before, name)


async def test_attempts_are_shown_in_their_order_whether_anything_was_heard_of_them_or_not(
    story: Story,
) -> None:
    leased = await story.running()
    await story.end(leased, "lost")
    await story.lease(leased.job)
    first, second = await story.store.runs.attempts(leased.job.run)
    assert [(first.number, first.outcome), (second.number, second.outcome)] == [(1, "lost"), (2, "")]
    assert await story.store.workers.attempts("w1", 0.0, 1) == [(second, "etl")]
    assert [attempt for attempt, _ in await story.store.workers.attempts("w1", 0.0, 9)] == [second, first]


async def test_one_may_have_overlapped_another_before_anything_was_heard_of_it(story: Story) -> None:
    attempt = await handed_over(story)
    await story.store.reports.mark_overlap("w2", [attempt.lease])
    assert await story.store.runs.attempts(attempt.run) == [attempt]
    await story.store.reports.mark_overlap("w1", [attempt.lease])
    (marked,) = await story.store.runs.attempts(attempt.run)
    assert marked.overlap_possible
    events = [protocol.Started(story.now, 42, "3.11.7", "host1"), story.result()]
    await story.store.reports.record(attempt.job, attempt.lease, "engine", 1, events, story.now)
    (ended,) = await story.store.runs.attempts(attempt.run)
    assert (ended.outcome, ended.overlap_possible) == ("completed", True)
    assert (ended.git, ended.leased_at) == (attempt.git, attempt.leased_at)


async def test_one_that_is_given_back_was_none(story: Story) -> None:
    leased = await story.lease(await story.run())
    await story.report(leased, protocol.Exit(story.now, "returned", "it waits long"), source=protocol.AGENT)
    assert (await story.job(leased.job.id)).state == "queued"
    assert await story.store.runs.attempts(leased.job.run) == []
