"""How the server itself is doing, counted as it goes: hand-offs, ends of runs, the lag of its event loop."""

from __future__ import annotations

import asyncio
import bisect
import time
from collections import Counter
from itertools import accumulate

from ..lifecycle import RUN, is_terminal
from ..model import Run
from .bus import Bus, Notice
from .service import Service

LATENCY_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0)
_LOOK_EVERY_S = 0.5


class Histogram:
    """Counts of observations by upper bound, and their sum."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.sum = 0.0
        self._counts = [0] * (len(bounds) + 1)

    def observe(self, value: float) -> None:
        """Count one observation."""
        self._counts[bisect.bisect_left(self.bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> list[tuple[float, int]]:
        """How many were at most each bound; the last bound is infinity."""
        return list(zip((*self.bounds, float("inf")), accumulate(self._counts), strict=True))


class Vitals(Service):
    """Counters since the start of the server, and a loop that measures the loop."""

    name = "vitals"

    def __init__(self, bus: Bus) -> None:
        super().__init__()
        self.dispatch = Histogram(LATENCY_BUCKETS_S)
        self.ended: Counter[str] = Counter()
        self._lag_max_s = 0.0
        bus.observe(self._note)

    def handed_over(self, waited_s: float) -> None:
        """A job was handed to a worker for the first time, so long after it was due."""
        self.dispatch.observe(max(0.0, waited_s))

    def take_lag(self) -> float:
        """The longest time the event loop was late by since this was last asked, in seconds."""
        lag_s, self._lag_max_s = self._lag_max_s, 0.0
        return lag_s

    def _note(self, notice: Notice) -> None:
        record = notice.record
        if isinstance(record, Run) and is_terminal(RUN, record.state):
            self.ended[record.state] += 1

    async def _work(self) -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(_LOOK_EVERY_S)
            self._lag_max_s = max(self._lag_max_s, time.monotonic() - began - _LOOK_EVERY_S)
