"""What ends an attempt whose engine does not end it itself: time, and silence."""

from __future__ import annotations

import asyncio
from typing import Callable, Mapping, Optional

_LOOKS = 5

IMPORT_S = 300
"""An engine may import a job's module for so long, where the server does not say how long."""


class Watches:
    """Of one attempt. ``end`` is called with why, ``written`` says how much its engine has reported.

    An engine has these limits too, and keeps them better. These are for one that is stuck where Python
    cannot act, so they leave it ``grace_s`` more. While it imports a module they do not count: that may take
    the ``import_s`` of ``limits``.
    """

    def __init__(
        self,
        timeout_s: Optional[float],
        silence_s: Optional[float],
        end: Callable[[str], None],
        written: Callable[[], int],
        limits: Mapping[str, int],
    ) -> None:
        self._timeout_s = timeout_s
        self._silence_s = silence_s
        self._end = end
        self._written = written
        self._import_s = limits.get("import_s", IMPORT_S)
        self._grace_s = 0.0
        self._blocked = False
        self._heard_at = float("-inf")
        self._backstop: Optional[asyncio.TimerHandle] = None
        self._silence: Optional[asyncio.Task[None]] = None

    def begin(self, grace_s: float) -> None:
        """The engine has the job."""
        self._grace_s = grace_s
        if self._timeout_s is not None:
            loop = asyncio.get_running_loop()
            self._backstop = loop.call_later(self._timeout_s + grace_s, self._end, "timeout")
        if self._silence_s is not None:
            self._silence = asyncio.ensure_future(self._end_when_silent(self._silence_s + grace_s))

    def close(self) -> None:
        """It has no engine any more."""
        for watch in (self._backstop, self._silence):
            if watch is not None:
                watch.cancel()

    def importing(self, begins: bool) -> None:
        """The engine imports the job's module, which it did not have; or has it now, and goes on."""
        self.close()
        if begins:
            loop = asyncio.get_running_loop()
            self._backstop = loop.call_later(self._import_s, self._end, "import")
        else:
            self.begin(self._grace_s)

    def heard(self) -> bool:
        """Output came that its engine did not see; says whether the engine should know that by now."""
        if self._silence_s is None:
            return False
        now = asyncio.get_running_loop().time()
        news = now - self._heard_at > self._silence_s / _LOOKS
        if news:
            self._heard_at = now
        return news

    def block(self, blocked: bool) -> None:
        """It waits for others, and has nothing to say meanwhile; or goes on."""
        self._blocked = blocked
        self._heard_at = asyncio.get_running_loop().time()

    async def _end_when_silent(self, limit_s: float) -> None:
        loop = asyncio.get_running_loop()
        seen_bytes, silent_since = -1, loop.time()
        while self._blocked or loop.time() - max(silent_since, self._heard_at) <= limit_s:
            await asyncio.sleep(limit_s / _LOOKS)
            written = self._written()
            if written != seen_bytes:
                seen_bytes, silent_since = written, loop.time()
        self._end("silence")
