"""What is on its way to one worker: gathered while the loop is at one thing, and sent when that is done.

None of it waits for another turn of the event loop, nor for a task that would have to be woken.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from starlette.websockets import WebSocket, WebSocketDisconnect

from farhand_worker import protocol

from ..engine.service import Wakeup
from ..engine.turn import Turn

_TOGETHER = protocol.BATCH_BYTES
"""A frame of several messages is no larger."""

LINGER_S = 0.02
"""So long what nobody waits for is held back, for a frame that it can go with."""


class Direct(Protocol):
    """A connection that is read and written without a task in between, where the web server has that."""

    @property
    def ready(self) -> bool:
        """Whether a text can be written now: the connection is open, and the peer reads what it is sent."""
        ...

    def write(self, text: str) -> None:
        """Send a text in a frame of its own, at once."""
        ...

    def take_by(self, take: Callable[[str], bool]) -> None:
        """Have ``take`` called with every text as it arrives, unless one before it waits to be received.
        A text that it does not take is to be received."""
        ...


class Outgoing:
    """The texts for one worker, in their order, and at last the end of its session.

    ``several``: it reads frames of several messages.
    """

    def __init__(self, websocket: WebSocket, direct: Direct | None, turn: Turn) -> None:
        self._websocket = websocket
        self._direct = direct
        self._turn = turn
        self._texts: deque[str] = deque()
        self._lingering: list[str] = []
        self._linger_until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._close: tuple[int, str] | None = None
        self._left = Wakeup()
        self._carrying = False
        self._answered = False
        self.several = False

    def put(self, text: str) -> None:
        """Send ``text`` after all before it."""
        self._texts.append(text)
        self._turn.send(self)

    def put_later(self, text: str) -> None:
        """Send ``text``, which nobody waits for, with what is sent next and after that; soon in any case."""
        if not self.several:
            self.put(text)
            return
        if not self._lingering:
            self._linger_until = asyncio.get_running_loop().time() + LINGER_S
        self._lingering.append(text)
        if self._timer is None:
            self._wait(LINGER_S)

    def close(self, code: int, reason: str) -> None:
        """End the session once all is sent."""
        self._close = code, reason
        self._turn.send(self)

    def flush(self) -> None:
        """Send what the connection takes at once, and leave the rest to `carry`."""
        if self._lingering:
            self._texts.extend(self._lingering)
            self._lingering.clear()
        direct = self._direct
        if direct is not None and not self._carrying:
            while self._texts and direct.ready:
                direct.write(self._frame())
        if self._texts or self._close is not None:
            self._left.set()

    def _wait(self, left_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(left_s, self._look)

    def _look(self) -> None:
        """Send what has lingered long enough: one timer is under way at most, whatever was sent meanwhile."""
        self._timer = None
        if self._lingering:
            left_s = self._linger_until - asyncio.get_running_loop().time()
            if left_s > 0:
                self._wait(left_s)
            else:
                self.flush()

    async def carry(self) -> None:
        """Send what the connection has not taken at once, until it is closed."""
        while True:
            await self._left.wait()
            self._carrying = True
            try:
                while self._texts:
                    await self._websocket.send_text(self._frame())
                if self._close is not None:
                    await self._websocket.close(*self._close)
                    return
            except (WebSocketDisconnect, RuntimeError, OSError):
                return
            self._carrying = False

    def _frame(self) -> str:
        """The next frame, off what waits. The answer to the hello is read before anything else: it goes
        alone."""
        texts = [self._texts.popleft()]
        size = len(texts[0])
        several, self._answered = self.several and self._answered, True
        while several and self._texts and size + len(self._texts[0]) <= _TOGETHER:
            texts.append(self._texts.popleft())
            size += len(texts[-1])
        return protocol.encode_several(texts)
