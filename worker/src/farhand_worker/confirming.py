"""That a job was accepted: its first report says so, unless that takes long; then a message does."""

from __future__ import annotations

import asyncio
from typing import Callable, Dict, Tuple

_SHARE = 0.1
"""A first report within this part of the time for it says that a job was accepted; else a message does."""

_JobKey = Tuple[str, int]


class Confirmations:
    """The jobs of which nothing has been said yet. ``confirm`` says that one was accepted."""

    def __init__(self, confirm: Callable[[str, int], None]) -> None:
        self._confirm = confirm
        self._due: Dict[_JobKey, float] = {}
        self._watching = False

    def expect(self, key: _JobKey, handoff_s: float) -> None:
        """A job was taken, which the server wants to know within so many seconds."""
        loop = asyncio.get_running_loop()
        self._due[key] = loop.time() + handoff_s * _SHARE
        if not self._watching:
            self._watching = True
            loop.call_at(self._due[key], self._look)

    def said(self, key: _JobKey) -> None:
        """A report of it goes out, or there is nothing to say of it any more."""
        self._due.pop(key, None)

    def _look(self) -> None:
        """Confirm what has not reported in time; one timer is under way at most, whatever their number."""
        self._watching = False
        loop = asyncio.get_running_loop()
        for key in [key for key, due_at in self._due.items() if due_at <= loop.time()]:
            del self._due[key]
            self._confirm(*key)
        if self._due:
            self._watching = True
            loop.call_at(min(self._due.values()), self._look)
