"""A blocked run gives back its slot and cores, and takes them again before it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from farhand.resources import Capacity
from farhand.store import Leased
from farhand_worker import protocol

if TYPE_CHECKING:
    from tests.contract.conftest import Story

pytestmark = pytest.mark.anyio

ONE = Capacity(1)
ASK = {"labels": [], "policy": "require", "runs_on": "any"}


def call(story: Story) -> protocol.Call:
    return protocol.Call("k1", "fit", "m:fit", {"enc": "json", "text": "[[],{}]"}, ASK, story.now)


async def blocked_parent(story: Story) -> tuple[Leased, str]:
    """A run that waits for its call, and the call's job."""
    parent = await story.running()
    (job,) = (await story.report(parent, call(story))).changes.enqueued
    (now,) = (await story.report(parent, protocol.Blocked(story.now, 1))).changes.blocked
    assert (now.blocked, now.block) == ("blocked", 1)
    return parent, job.id


async def test_a_call_takes_the_slot_that_its_run_gave_back_and_the_run_waits_for_it(story: Story) -> None:
    parent, called = await blocked_parent(story)
    lease = parent.job.lease or 0
    child = await story.lease(called, "w1", 1)
    assert await story.store.jobs.proceed(parent.job.id, lease, ONE) is None, "it has not asked"
    changes = (await story.report(parent, protocol.Unblocked(story.now, 1))).changes
    assert changes.blocked[0].blocked == "unblocked"
    assert await story.store.jobs.proceed(parent.job.id, lease, ONE) is None, "the slot is taken"
    await story.report(child, protocol.Started(story.now, 1, "3.11"), story.result())
    after = await story.store.jobs.proceed(parent.job.id, lease, ONE)
    assert after is not None
    assert (after.blocked, after.block) == ("", 1)
    assert await story.store.jobs.proceed(parent.job.id, lease, ONE) is None, "once"


async def test_an_end_of_another_wait_unblocks_nothing(story: Story) -> None:
    parent, _ = await blocked_parent(story)
    assert (await story.report(parent, protocol.Unblocked(story.now, 2))).changes.blocked == ()
    assert (await story.job(parent.job.id)).blocked == "blocked"


async def test_a_lost_run_is_not_blocked_when_it_is_queued_again(story: Story) -> None:
    parent, called = await blocked_parent(story)
    await story.end(parent, "lost")
    again = await story.job(parent.job.id)
    assert (again.state, again.blocked, again.block, again.last_worker) == ("queued", "", 0, "w1")
    assert (await story.job(called)).state == "queued", "its call goes on"


@pytest.mark.fault("3.27")
@pytest.mark.parametrize("step", ["queued", "leased", "running", "ended"])
async def test_a_run_cancelled_at_any_step_of_its_calls_hand_off_leaves_no_call_behind(
    story: Story, step: str
) -> None:
    parent, called = await blocked_parent(story)
    child = None if step == "queued" else await story.lease(called, "w2")
    if child is not None and step != "leased":
        await story.report(child, protocol.Started(story.now, 1, "3.11"))
    if child is not None and step == "ended":
        await story.report(child, story.result())
    changes = await story.cancel(parent.job.run)
    told = {job.id for job in changes.cancel}
    assert told == {parent.job.id} | ({called} if step in ("leased", "running") else set())
    if child is not None and step in ("leased", "running"):
        await story.report(child, story.exit("cancelled"), source=protocol.AGENT)
    await story.report(parent, story.exit("cancelled"), source=protocol.AGENT)
    assert await story.state(parent.job.run) == "cancelled"
    assert (await story.job(called)).state == "ended"
    assert (await story.job(parent.job.id)).state == "ended"
