"""A commit's changes reach the queue, the fleet, the wire and the watchers."""

from __future__ import annotations

import pytest

from farhand.engine.bus import Bus
from farhand.engine.consequences import Consequences
from farhand.engine.fleet import Fleet
from farhand.engine.member import Member
from farhand.engine.queue import Queue
from farhand.engine.service import Wakeup
from farhand.model import JobSettings
from farhand.store.changes import Changes, PlacedOutcome
from farhand_worker import protocol
from tests.unit.engine.records import FakeLink, a_job, a_run

pytestmark = pytest.mark.anyio


class Small:
    def __init__(self) -> None:
        self.queue, self.fleet, self.bus, self.wakeup = Queue(), Fleet(protocol.Times()), Bus(), Wakeup()
        self.consequences = Consequences(self.queue, self.fleet, self.bus, self.wakeup)
        self.link = FakeLink()
        self.box = self.holding("j1", 7)

    def holding(self, job: str, lease: int) -> Member:
        box = self.fleet.member("box")
        box.link = self.link
        self.fleet.hold(box, a_job(job), lease)
        return box

    @property
    def awake(self) -> bool:
        return self.wakeup.is_set


@pytest.fixture
async def world() -> Small:
    return Small()


async def test_a_started_run_is_queued_and_told(world: Small) -> None:
    run, job = a_run("r1"), a_job("j2", run="r1")
    async with world.bus.subscribe() as notices:
        world.consequences.follow_start(run, job)
        notice = await anext(notices)
    assert (notice.kind, notice.run, notice.record) == ("run", "r1", run)
    assert world.queue.heads() == [job]
    assert world.awake


async def test_a_lease_that_ended_frees_its_slot_before_the_job_is_queued_again(world: Small) -> None:
    again = a_job("j1", attempt=1)
    world.consequences.follow(Changes(released=(("j1", 7, "box"),), enqueued=(again,)))
    assert world.box.busy == 0
    assert world.queue.heads() == [again]
    assert world.awake


async def test_a_job_that_left_the_queue_is_not_handed_over(world: Small) -> None:
    world.queue.add(a_job("j2"), 10.0)
    world.consequences.follow(Changes(dequeued=("j2",)))
    assert world.queue.heads() == []


async def test_a_cancel_goes_to_the_holder_under_its_lease(world: Small) -> None:
    world.holding("j2", 8)
    world.consequences.follow(Changes(cancel=(a_job("j1"), a_job("j2"), a_job("held by nobody"))))
    assert world.link.sent == [protocol.Cancel("j1", 7), protocol.Cancel("j2", 8)]
    assert not world.awake


async def test_outcomes_go_to_the_parents_that_wait_for_them(world: Small) -> None:
    world.holding("j2", 8)
    outcomes = (PlacedOutcome("j2", "k2", {"state": "failed"}), PlacedOutcome("j1", "k1", {}))
    world.consequences.follow(Changes(outcomes=outcomes))
    assert world.link.sent == [
        protocol.Outcome("j2", 8, "k2", {"state": "failed"}),
        protocol.Outcome("j1", 7, "k1", {}),
    ]


async def test_workers_are_told_first_and_the_rest_is_done_once_that_is_sent(world: Small) -> None:
    parent = world.holding("j2", 8)
    changes = Changes(
        released=(("j1", 7, "box"),), outcomes=(PlacedOutcome("j2", "k1", {}),), dequeued=("j3",)
    )
    with world.consequences.turn:
        world.consequences.follow(changes)
        assert world.link.sent == [protocol.Outcome("j2", 8, "k1", {})]
        assert set(parent.holdings) == {7, 8}
    assert set(parent.holdings) == {8}


async def test_an_attempt_that_has_just_ended_is_told_nothing(world: Small) -> None:
    outcomes = (PlacedOutcome("j1", "k1", {}),)
    world.consequences.follow(Changes(released=(("j1", 7, "box"),), outcomes=outcomes, cancel=(a_job("j1"),)))
    assert world.link.sent == []


async def test_changed_runs_and_streams_are_told(world: Small) -> None:
    async with world.bus.subscribe() as notices:
        world.consequences.follow(Changes(runs=(a_run("r1"),), streams=("r2",)))
        world.bus.close()
        told = [(notice.kind, notice.run) async for notice in notices]
    assert told == [("run", "r1"), ("logs", "r2")]
    assert not world.awake, "a line of a log wakes no dispatcher"


async def test_a_start_behind_another_that_waits_wakes_nobody(world: Small) -> None:
    world.consequences.expect_start(a_job("j2", run="r2"))
    assert world.awake
    world.wakeup.is_set = False
    world.consequences.expect_start(a_job("j3", run="r3"))
    assert not world.awake
    assert len(world.queue) == 2
    world.queue.counted = frozenset({lane for _, lane in world.queue.lanes()})
    world.consequences.expect_start(a_job("j4", run="r4"))
    assert world.awake


async def test_an_end_whose_slot_was_given_away_when_it_was_reported_wakes_nobody(world: Small) -> None:
    world.box.part_with(7)
    world.consequences.follow(Changes(released=(("j1", 7, "box"),)))
    assert not world.awake
    assert world.box.busy == 0


async def test_the_end_of_a_run_whose_flow_has_a_limit_lets_another_go_on_once_it_is_recorded(
    world: Small,
) -> None:
    """B070: nobody waits for the next look at the clock."""
    world.fleet.hold(world.box, a_job("j2", settings=JobSettings(max_concurrent=1)), 8)
    world.box.part_with(8)
    world.consequences.follow(Changes(released=(("j2", 8, "box"),)))
    assert world.awake
