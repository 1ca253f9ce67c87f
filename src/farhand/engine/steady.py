"""The clock that waiting goes by: seconds since the epoch as they were at the start, counted on steadily.

What is recorded carries the wall clock's time. What waits must not wait by it: set back an hour, it would
hold up a retry by an hour; set ahead, it would let delays pass at once. So the moments of a queued job are
taken over to this clock when it enters the queue in memory, and back when they are shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from ..model import Job

_MOVED_S = 1.0
"""By less, the two clocks are taken to agree."""


class Steady:
    """A clock that nobody sets."""

    def __init__(
        self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._began = wall() - monotonic()

    def now(self) -> float:
        """Now, on this clock."""
        return self._began + self._monotonic()

    def of(self, job: Job) -> Job:
        """A job that was recorded just now, or before a start, with its moments on this clock."""
        wall = self._wall()
        # One that was queued later than now was so before the clock was set back.
        shift = self.now() - (wall if job.queued_at <= wall + _MOVED_S else job.queued_at)
        if abs(shift) < _MOVED_S:
            return job
        not_before = job.not_before + shift if job.not_before else 0.0
        return replace(job, queued_at=job.queued_at + shift, not_before=not_before)

    def shown(self, moment: float) -> float:
        """A moment of this clock by the wall clock as it is now (epoch seconds)."""
        shift = self._wall() - self.now()
        return moment + shift if abs(shift) >= _MOVED_S else moment
