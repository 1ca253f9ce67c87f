"""That there will be something to report in a moment: one timer for all who say so."""

from __future__ import annotations

import asyncio
from typing import Callable, Optional


class Waking:
    """Calls ``wake`` once, at the earliest of the moments that were asked for."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._timer: Optional[asyncio.TimerHandle] = None

    def within(self, delay_s: float) -> None:
        """In so many seconds, or sooner."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + delay_s:
                return
            self._timer.cancel()
        self._timer = loop.call_later(delay_s, self._due)

    def _due(self) -> None:
        self._timer = None
        self._wake()
