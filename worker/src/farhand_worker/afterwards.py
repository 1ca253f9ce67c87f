"""What nobody waits for, done together a moment later: the book-keeping of short jobs.

Each piece of it is small. Done one by one, between what somebody does wait for, each costs several times
what it costs after another of its kind.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Callable, Deque, Optional, Tuple

AFTER_S = 0.2
MANY = 60
"""What a dozen jobs leave to be done, which is enough to be worth a turn of its own."""


class Afterwards:
    """Calls what it was given, in that order, at most ``AFTER_S`` later, or sooner when it is much.

    Used on one event loop.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._left: Deque[Tuple[Callable[..., object], Tuple[Any, ...]]] = deque()
        self._timer: Optional[asyncio.TimerHandle] = None

    def do(self, act: Callable[..., object], *arguments: Any) -> None:
        """Have something done."""
        self._left.append((act, arguments))
        if self._timer is None:
            self._timer = self._loop.call_later(AFTER_S, self._due)
        elif len(self._left) == MANY:
            self._timer.cancel()
            self._timer = self._loop.call_later(0, self._due)

    def catch_up(self) -> None:
        """Do now what is left."""
        while self._left:
            act, arguments = self._left.popleft()
            act(*arguments)

    def close(self) -> None:
        """Do now what is left: no timer comes any more."""
        if self._timer is not None:
            self._timer.cancel()
        self.catch_up()

    def _due(self) -> None:
        self._timer = None
        try:
            self.catch_up()
        except Exception as error:  # noqa: BLE001 - one has failed: nobody waits for it, nor do the others suffer
            self._loop.call_exception_handler({"message": "something was not seen to", "exception": error})
        if self._left:
            self._timer = self._loop.call_later(AFTER_S, self._due)
