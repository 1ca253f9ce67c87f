"""A moment that is put off again and again and seldom comes: a timer each time would cost too much."""

from __future__ import annotations

import asyncio
from typing import Callable, Optional


class Moment:
    """Calls what it was set to do, so many seconds after it was last set. One timer is under way at most."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._loop = asyncio.get_running_loop()
        self._act: Optional[Callable[[], None]] = None
        self._due_at = 0.0
        self._timer: Optional[asyncio.TimerHandle] = None

    @property
    def is_set(self) -> bool:
        """Whether it will come."""
        return self._act is not None

    def set(self, act: Callable[[], None], delay_s: Optional[float] = None) -> None:
        """Let it come, counted from now; what it was to do before is forgotten."""
        self._act = act
        self._due_at = self._loop.time() + (self._delay_s if delay_s is None else delay_s)
        if self._timer is not None and self._timer.when() > self._due_at:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(self._due_at, self._look)

    def clear(self) -> None:
        """Let it not come; a timer that is under way finds nothing to do."""
        self._act = None

    def close(self) -> None:
        """Neither it nor its timer comes."""
        self._act = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self._act is None:
            return
        if self._loop.time() < self._due_at:
            self._timer = self._loop.call_at(self._due_at, self._look)
            return
        act, self._act = self._act, None
        act()
