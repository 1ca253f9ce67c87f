"""What is on its way to workers: gathered while the loop is at one thing, and sent when that is done.

A commit may be followed by many messages to one worker, which then share a frame, and by messages to several.
None of them waits for another turn of the event loop, nor for a task that would have to be woken.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from starlette.websockets import WebSocket, WebSocketDisconnect

from farhand_worker import protocol

from ..engine.service import Wakeup

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


class Outbox:
    """Those who have something to send. Entered by whoever may give them several things to send at once."""

    def __init__(self) -> None:
        self._waiting: dict[Outgoing, None] = {}
        self._entered = False

    def add(self, outgoing: Outgoing) -> None:
        """Let it send when what the loop does now is done, or else in its next turn."""
        if not self._waiting and not self._entered:
            asyncio.get_running_loop().call_soon(self._flush)
        self._waiting[outgoing] = None

    def __enter__(self) -> None:
        self._entered = True

    def __exit__(self, *_: object) -> None:
        self._entered = False
        self._flush()

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for outgoing in waiting:
            outgoing.flush()


class Outgoing:
    """The texts for one worker, in their order, and at last the end of its session.

    ``several``: it reads frames of several messages.
    """

    def __init__(self, websocket: WebSocket, direct: Direct | None, outbox: Outbox) -> None:
        self._websocket = websocket
        self._direct = direct
        self._outbox = outbox
        self._texts: deque[str] = deque()
        self._lingering = ""
        self._timer: asyncio.TimerHandle | None = None
        self._close: tuple[int, str] | None = None
        self._left = Wakeup()
        self._carrying = False
        self._answered = False
        self.several = False

    def put(self, text: str) -> None:
        """Send ``text`` after all before it."""
        self._texts.append(text)
        self._outbox.add(self)

    def put_later(self, text: str) -> None:
        """Send ``text``, which nobody waits for, with what is sent next and after that; soon in any case.

        It is one text at most: of two, the first has been waited with long enough.
        """
        if self._lingering or not self.several:
            self.put(text)
        else:
            self._lingering = text
            self._timer = asyncio.get_running_loop().call_later(LINGER_S, self.flush)

    def close(self, code: int, reason: str) -> None:
        """End the session once all is sent."""
        self._close = code, reason
        self._outbox.add(self)

    def flush(self) -> None:
        """Send what the connection takes at once, and leave the rest to `carry`."""
        if self._lingering:
            self._texts.append(self._lingering)
            self._lingering = ""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        direct = self._direct
        if direct is not None and not self._carrying:
            while self._texts and direct.ready:
                direct.write(self._frame())
        if self._texts or self._close is not None:
            self._left.set()

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
