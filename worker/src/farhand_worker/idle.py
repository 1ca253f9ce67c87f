"""Leaving when there has been nothing to do for a while."""

from __future__ import annotations

import asyncio
from typing import Callable


class Idle:
    """Calls ``leave`` once nothing was ``busy`` for ``limit_s``."""

    def __init__(self, limit_s: float, busy: Callable[[], bool], leave: Callable[[], None]) -> None:
        self._limit_s = limit_s
        self._busy = busy
        self._leave = leave
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        self._timer = self._loop.call_later(limit_s, self._look)

    def worked(self) -> None:
        """There was something to do until now."""
        self._since = self._loop.time()

    def close(self) -> None:
        """Stay."""
        self._timer.cancel()

    def _look(self) -> None:
        if self._busy():
            self.worked()
        left_s = self._since + self._limit_s - self._loop.time()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._look)
        else:
            self._leave()
