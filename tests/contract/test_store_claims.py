"""A report and the leases that follow from it are one transaction."""

from __future__ import annotations

import pytest

from farhand.errors import StaleLease
from farhand.resources import Capacity
from farhand.store.claims import Claim
from tests.contract.conftest import Story
from tests.harness.stores import handed

pytestmark = pytest.mark.anyio


def claim(job: str = "", key: str = "", slots: int = 1, run: str = "") -> Claim:
    return Claim("w2", Capacity(slots), job, key, run=run)


async def test_a_call_is_queued_and_leased_in_the_transaction_that_records_it(story: Story) -> None:
    parent = await story.running()
    operations = story.store.database.operations
    recorded = await story.store.reports.record(
        parent.job.id, parent.job.lease or 0, "engine", 2, [story.call("a"), story.call("b")], story.now,
        claims=[claim(key=key, run=parent.job.run) for key in "abc"],
    )  # fmt: skip
    assert story.store.database.operations == operations + 1
    taken, full, unknown = recorded.leased
    assert taken is not None
    assert (full, unknown) == (None, None)
    assert (await story.job(taken.job.id)) == taken.job
    assert (taken.job.state, taken.job.worker, taken.job.key) == ("leased", "w2", "a")
    assert [job.key for job in recorded.changes.enqueued] == ["b"]
    assert (await story.task(parent.job.run, "a")).worker == "w2"


async def test_the_slot_of_an_attempt_that_ends_is_anothers_in_the_same_transaction(story: Story) -> None:
    ending = await story.running(worker="w2")
    waiting = await story.run()
    full = await handed(story.store, waiting.id, "w2", Capacity(1), story.now)
    assert full is None
    recorded = await story.store.reports.record(
        ending.job.id,
        ending.job.lease or 0,
        "engine",
        2,
        [story.result()],
        story.now,
        claims=[claim(waiting.id)],
    )
    assert recorded.leased[0] is not None
    assert (await story.job(waiting.id)).state == "leased"
    assert (await story.job(ending.job.id)).state == "ended"


async def test_a_report_that_is_refused_leases_nothing(story: Story) -> None:
    leased = await story.running(worker="w2")
    waiting = await story.run()
    with pytest.raises(StaleLease):
        await story.store.reports.record(
            leased.job.id, 999, "engine", 2, [story.result()], story.now, claims=[claim(waiting.id)]
        )
    assert (await story.job(waiting.id)).state == "queued"


async def test_a_call_that_an_earlier_attempt_placed_is_not_leased_again(story: Story) -> None:
    parent = await story.running()
    await story.report(parent, story.call("a"))
    recorded = await story.store.reports.record(
        parent.job.id,
        parent.job.lease or 0,
        "engine",
        3,
        [story.call("a")],
        story.now,
        claims=[claim(key="a")],
    )
    assert recorded.leased == (None,)
