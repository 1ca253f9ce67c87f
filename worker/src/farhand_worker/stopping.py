"""The order to end an attempt: an exception in user code now, SIGTERM soon, SIGKILL after the grace."""

from __future__ import annotations

import asyncio
from typing import Callable

_TERM_SHARE = 0.2
_TERM_S_MAX = 2.0


class Stop:
    """Of one attempt, with its ``reason``. The exception is for who gives the order to send."""

    def __init__(
        self, reason: str, grace_s: float, terminate: Callable[[], None], kill: Callable[[], None]
    ) -> None:
        self.reason = reason
        later = asyncio.get_running_loop().call_later
        self._timers = (
            later(min(_TERM_S_MAX, grace_s * _TERM_SHARE), terminate),
            later(grace_s, kill),
        )

    def close(self) -> None:
        """It has ended."""
        for timer in self._timers:
            timer.cancel()
