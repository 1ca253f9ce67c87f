"""One websocket session, from its welcome to its end: who may send next, and whether the peer answers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional

from websockets.exceptions import ConnectionClosed

from .clock import lease_now
from .link import Link
from .protocol import (
    BATCH_BYTES,
    Ack,
    Bye,
    Heartbeat,
    ProtocolViolation,
    decode_each,
    encode,
    encode_several,
)

_BEATS_UNANSWERED = 3
_GOODBYE_S = 0.5


class SessionOver(Exception):
    """The session has ended; the message says why."""


class Session:
    """Sends control messages before reports, beats, and hands on what arrives.

    ``reports`` gives the next frame of reports that may go, or None; ``receive`` gets each message, and
    ``received`` is called after those that came in one frame. What is
    there to be said at the same time travels together, to a server that reads ``several`` in one frame.
    """

    def __init__(
        self,
        socket: Link,
        heartbeat_s: float,
        reports: Callable[[], Optional[str]],
        receive: Callable[[Any], None],
        behind: Callable[[], List[str]],
        several: bool = False,
        received: Callable[[], None] = lambda: None,
    ) -> None:
        self._received = received
        self._several = several
        self._socket = socket
        self._heartbeat_s = heartbeat_s
        self._reports = reports
        self._receive = receive
        self._behind = behind
        self._control: Deque[str] = deque()
        self._carried: Optional[str] = None
        self._wake = asyncio.Event()
        self._idle = False
        self._beat = 0
        self._unanswered: Dict[int, float] = {}
        self._over: Optional[str] = None
        self._patience_s = 0.0
        self._trouble: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def send(self, message: Any) -> None:
        """Send a control message, before any report that has not gone yet."""
        self._control.append(encode(message))
        self._wake.set()

    def wake(self) -> None:
        """There may be something to report."""
        self._wake.set()

    def wake_now(self, reports: Callable[[], Optional[str]]) -> None:
        """Somebody waits for what ``reports`` gives: it does not wait for a turn of the loop."""
        if self._over is None and self._idle and not self._trouble.done():
            self._guard(self._say_all, reports)
        else:
            self._wake.set()

    def _say_all(self, reports: Callable[[], Optional[str]]) -> None:
        while self._socket.takes_more:
            texts = self._together(reports)
            if texts:
                self._socket.say(encode_several(texts))
            if self._carried is None and not (texts and not self._several):
                return
        self._wake.set()

    def finish(self, why: str, bye: Optional[Bye] = None) -> None:
        """End the session, after a goodbye if there is one."""
        if bye is not None:
            self._control.append(encode(bye))
            self._patience_s = _GOODBYE_S
        self._over = why
        self._wake.set()

    def answered(self, number: int) -> Optional[float]:
        """The server has answered a heartbeat; when that was sent, on the lease clock."""
        sent_at = self._unanswered.get(number)
        for earlier in [n for n in self._unanswered if n <= number]:
            del self._unanswered[earlier]
        return sent_at

    async def run(self) -> None:
        """Until the session is over; always raises `SessionOver` or `ProtocolViolation`."""
        tasks = [asyncio.ensure_future(part()) for part in (self._send_all, self._receive_all, self._beat_on)]
        self._socket.listen(self._hear)
        try:
            done, _ = await asyncio.wait([self._trouble, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()
        except ConnectionClosed as error:
            raise SessionOver(_reason(error)) from error
        finally:
            self._socket.listen(None)
            self._idle = False
            self._trouble.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(self._trouble, *tasks, return_exceptions=True)

    async def _send_all(self) -> None:
        while True:
            self._idle = True
            await self._wake.wait()
            self._idle = False
            self._wake.clear()
            while texts := self._together(self._reports):
                await self._put(encode_several(texts))
            if self._over is not None:
                await self._part()
                raise SessionOver(self._over)

    async def _put(self, text: str) -> None:
        if not self._socket.say(text):
            await self._socket.send(text)
        elif self._socket.paused:
            await self._socket.drain()

    def _together(self, reports: Callable[[], Optional[str]]) -> List[str]:
        """What goes in the next frame: as much as is there to be said, up to the size of a batch."""
        texts: List[str] = []
        size = 0
        while (text := self._next(reports)) is not None:
            if texts and size + len(text) > BATCH_BYTES:
                self._carried = text
                break
            texts.append(text)
            size += len(text)
            if not self._several:
                break
        return texts

    def _next(self, reports: Callable[[], Optional[str]]) -> Optional[str]:
        if self._carried is not None:
            text, self._carried = self._carried, None
            return text
        if self._control:
            return self._control.popleft()
        return None if self._over is not None else reports()

    async def _part(self) -> None:
        """After a goodbye the server closes; closing first might keep it from reading that."""
        if self._patience_s:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._socket.wait_closed(), self._patience_s)
        await self._socket.close()

    async def _receive_all(self) -> None:
        """What is not handed over: it came before this session, in parts, or is no text."""
        while True:
            text = await self._socket.recv()
            if isinstance(text, bytes):
                raise ProtocolViolation("a binary frame")
            self._receive_each(text)
            self._socket.received()

    def _hear(self, text: str) -> None:
        """A text that is handed over."""
        if not self._trouble.done():
            self._guard(self._receive_each, text)

    def _guard(self, act: Callable[[Any], None], argument: Any) -> None:
        """Whatever goes wrong ends the session, not whoever had it done."""
        try:
            act(argument)
        except Exception as error:  # noqa: BLE001 - `run` raises it
            if not self._trouble.done():
                self._trouble.set_exception(error)

    def _receive_each(self, text: str) -> None:
        """What has been recorded is noted last: nobody waits for that."""
        acks: List[Ack] = []
        try:
            for message in decode_each(text):
                if type(message) is Ack:
                    acks.append(message)
                else:
                    self._receive(message)
        finally:
            self._received()
        for ack in acks:
            self._receive(ack)

    def beat(self) -> None:
        """Say that this worker is there, now."""
        self._beat += 1
        self._unanswered[self._beat] = lease_now()
        self.send(Heartbeat(self._beat, time.time(), self._behind()))

    async def _beat_on(self) -> None:
        while True:
            self.beat()
            await asyncio.sleep(self._heartbeat_s)
            if len(self._unanswered) >= _BEATS_UNANSWERED:
                raise SessionOver(f"no answer for {_BEATS_UNANSWERED * self._heartbeat_s:g} s")


def _reason(error: ConnectionClosed) -> str:
    frame = error.rcvd
    if frame is not None and frame.reason:
        return f"the server closed the session: {frame.reason}"
    return "the server closed the session" if frame is not None else "the connection broke"
