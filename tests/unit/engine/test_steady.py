"""A clock that nobody sets, and what waits when the wall clock is set."""

from __future__ import annotations

import pytest

from farhand.engine.queue import Queue
from farhand.engine.steady import Steady
from farhand.model import Job
from tests.unit.engine.records import a_job

HOUR = 3600.0


class Clocks:
    """A wall clock that can be set, and the monotonic one behind it."""

    def __init__(self) -> None:
        self.wall, self.monotonic = 1_000_000.0, 50.0
        self.steady = Steady(lambda: self.wall, lambda: self.monotonic)
        self.queue = Queue()
        self.queue.steady = self.steady

    def pass_time(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds

    def record(self, delay_s: float = 0.0, **fields: object) -> Job:
        """A job as the store gives it back at this moment."""
        due_at = self.wall + delay_s if delay_s else 0.0
        return a_job("j", queued_at=self.wall, not_before=due_at, **fields)

    def enter(self, recorded: Job) -> None:
        self.queue.add(self.steady.of(recorded), self.steady.now())

    def due(self) -> bool:
        self.queue.ripen(self.steady.now())
        return bool(self.queue.heads())


@pytest.mark.fault("2.25")
@pytest.mark.parametrize("moved_s", [-HOUR, HOUR, -10 * 365 * 24 * HOUR])
@pytest.mark.parametrize("before", [True, False], ids=["recorded before", "recorded after"])
def test_a_delay_lasts_as_long_as_was_said_whatever_the_wall_clock_is_set_to(
    moved_s: float, before: bool
) -> None:
    clocks = Clocks()
    if not before:
        clocks.wall += moved_s
    clocks.enter(clocks.record(delay_s=10.0))
    if before:
        clocks.wall += moved_s
    clocks.pass_time(9.5)
    assert not clocks.due()
    clocks.pass_time(1.0)
    assert clocks.due()


@pytest.mark.fault("2.25")
def test_a_delay_recorded_by_a_clock_that_was_ahead_is_no_longer_than_it_was() -> None:
    clocks = Clocks()
    recorded = clocks.record(delay_s=10.0)
    clocks.wall -= HOUR
    clocks.steady = clocks.queue.steady = Steady(lambda: clocks.wall, lambda: clocks.monotonic)
    clocks.enter(recorded)
    clocks.pass_time(10.5)
    assert clocks.due()


@pytest.mark.fault("2.25")
def test_a_worker_that_a_job_was_on_is_preferred_for_no_longer_than_was_said() -> None:
    clocks = Clocks()
    clocks.enter(clocks.record(last_worker="mill"))
    clocks.wall -= HOUR
    clocks.pass_time(11.0)
    assert clocks.due()
    (head,) = clocks.queue.heads()
    lane = clocks.queue.lane_of(head)
    assert lane is not None
    assert lane.earlier == ""


def test_until_when_a_job_waits_is_shown_by_the_wall_clock() -> None:
    clocks = Clocks()
    clocks.enter(clocks.record(delay_s=10.0))
    clocks.wall += HOUR
    waiting = clocks.queue.waiting("j")
    assert waiting is not None
    assert waiting.until == clocks.wall + 10.0


def test_a_wall_clock_that_agrees_changes_no_record() -> None:
    clocks = Clocks()
    clocks.pass_time(100.0)
    recorded = clocks.record(delay_s=10.0)
    clocks.wall += 0.5
    assert clocks.steady.of(recorded) is recorded
