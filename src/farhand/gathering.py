"""Connections that send once for each turn of the event loop, whatever was written in it.

A response is written as a head and a body: each write would be a system call of its own, in which the store's
writer takes the interpreter. And a websocket that is read by a task which waits for it already need not stop
listening between two frames.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import httptools
from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .receiving import BODY, Reception, Write
from .sendfile import send_file

BYTES_MAX = 64 * 1024
"""So much is never held back: whoever writes more is told when it is too much for the other side."""

PATHSEND = "http.response.pathsend"
"""The message, and the extension of ASGI, by which an application has the server send a file."""

RECEIVED_BYTES_MIN = 256 * 1024
"""So much of a large body is awaited before it is looked at."""

_LARGE_BYTES = 64 * 1024
"""A smaller body comes in a piece or two, whatever is asked of the system for it."""

_READ_BYTES = 1024 * 1024


class Gathering:
    """A transport that writes at the end of the loop's turn what was given to it meanwhile.

    Whoever pauses reading and goes on in the same turn, or the next one, has not paused at all. A websocket
    writes each frame at once, and waits for no end of the turn.
    """

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._written: list[bytes] = []
        self._size = 0
        self._reading = True
        self._reads = True
        self._settling = False
        self._at_once = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, content: bytes) -> None:
        """Send ``content`` after all that was written before it."""
        if self._at_once:
            self._transport.write(content)
            return
        if not self._written:
            self._loop.call_soon(self.flush)
        self._written.append(content)
        self._size += len(content)
        if self._size >= BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        """Send what was written."""
        if self._written:
            written, self._written, self._size = self._written, [], 0
            self._transport.write(written[0] if len(written) == 1 else b"".join(written))

    def hold_nothing_back(self) -> None:
        """Send what was written, and from now on whatever is written; frames may be large."""
        self.flush()
        self._at_once = True
        self.read_at_most(RECEIVED_BYTES_MIN)

    def read_at_most(self, count: int) -> None:
        """Receive no more at a time: the system's own transport takes room for so much before it knows."""
        self._transport.max_size = count

    def close(self) -> None:
        """Send what was written, then close."""
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._written.clear()
        self._transport.abort()

    def pause_reading(self) -> None:
        """Read nothing more, unless somebody goes on before the loop comes to it."""
        self._reading = False
        if not self._settling:
            self._settling = True
            self._loop.call_soon(self._settle)

    def stop_reading(self) -> None:
        """Read nothing more from now on."""
        self.pause_reading()
        self._stop()

    def resume_reading(self) -> None:
        """Read again."""
        self._reading = True
        if not self._reads:
            self._reads = True
            self._transport.resume_reading()

    def _settle(self) -> None:
        self._settling = False
        self._stop()

    def _stop(self) -> None:
        if not self._reading and self._reads:
            self._reads = False
            self._transport.pause_reading()


class GatheringProtocol(HttpToolsProtocol):
    """uvicorn's connection over such a transport; a websocket takes it over with the connection.

    Where nothing has to be encrypted, files go out within the kernel, by ASGI's extension for that, and large
    bodies are left in the socket for whoever would have them poured, by one of ours.
    """

    body_left = 0
    _low = 1

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        gathering: Any = Gathering(transport, self.loop)
        gathering.read_at_most(_LARGE_BYTES)
        super().connection_made(gathering)

    def on_headers_complete(self) -> None:
        """The request is known, and is about to be answered."""
        if self.scheme != "http":
            super().on_headers_complete()
            return
        scope: Any = self.scope
        scope["extensions"] = {PATHSEND: {}}
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:
            cycle: Any = self.cycle
            cycle.send = FileSending(cycle)
            length = _length_of(self.headers)
            self.body_left = length if length >= _LARGE_BYTES else 0
            self._expect_much()
            if self.body_left and not self.pipeline and not self.expect_100_continue:
                scope["extensions"][BODY] = LargeBody(self, cycle)
                self.flow.pause_reading()

    def handle_websocket_upgrade(self) -> None:
        """The connection is a websocket's from now on: what goes together is one frame there."""
        gathering: Any = self.transport
        gathering.hold_nothing_back()
        super().handle_websocket_upgrade()

    def on_body(self, body: bytes) -> None:
        """A piece of the request's body has come."""
        self.body_left -= len(body)
        self._expect_much()
        super().on_body(body)

    def go_on_after(self, left: int) -> None:
        """The body was taken from the socket, except for what is ``left``, which nobody wants."""
        self.body_left = self._low = 0
        self._expect_much()
        self.flow.resume_reading()
        if left:
            unwanted: Any = Unwanted(self, left)
            self.parser = unwanted
        else:
            self.begin_anew()

    def begin_anew(self) -> None:
        """The body has ended where its parser could not see it: another one reads what comes next."""
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        self.on_message_complete()

    def _expect_much(self) -> None:
        """Be woken for large pieces of a body only: each costs a turn of the loop and of whoever takes it.

        Of anything else no more is read at a time than fits into memory that is at hand.
        """
        low = max(1, min(self.body_left, RECEIVED_BYTES_MIN))
        if low != self._low:
            self._low = low
            transport: Any = self.transport
            transport.read_at_most(max(low, _LARGE_BYTES))
            with contextlib.suppress(OSError):  # the connection has ended, or the system has no such thing
                self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low)


class LargeBody:
    """The body of a request that is still in its socket, for the most part."""

    def __init__(self, protocol: GatheringProtocol, cycle: Any) -> None:
        self._protocol = protocol
        self._cycle = cycle

    async def pour(self, write: Write, end: Callable[[], object]) -> None:
        """Have threads ``write`` it and then ``end`` it. Raises `ClientDisconnect`, and what those raise."""
        protocol, cycle = self._protocol, self._cycle
        transport: Any = protocol.transport
        if cycle.disconnected or transport.is_closing():
            raise ClientDisconnect
        transport.stop_reading()
        begun, cycle.body = cycle.body, bytearray()
        with transport.get_extra_info("socket").dup() as connection:
            reception = Reception(connection, begun, protocol.body_left)
            try:
                await reception.pour(write, end)
                return
            except ConnectionError:
                pass  # of which the loop is told as well
            finally:
                protocol.go_on_after(reception.left)
        while (await cycle.receive())["type"] != "http.disconnect":
            pass
        raise ClientDisconnect


class Unwanted:
    """In the place of a parser, while what is ``left`` of a body comes that nobody wants any more."""

    def __init__(self, protocol: GatheringProtocol, left: int) -> None:
        self._protocol = protocol
        self._left = left

    def should_upgrade(self) -> bool:
        """It is the body of a plain request."""
        return False

    def feed_data(self, content: bytes) -> None:
        """Let it go; what follows is the next request."""
        next_one = content[self._left :]
        self._left -= len(content) - len(next_one)
        if not self._left:
            self._protocol.begin_anew()
        if next_one:
            self._protocol.parser.feed_data(next_one)


def _length_of(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """The bytes of a body as its request tells them; 0 when it does not."""
    length = next((value for name, value in headers if name == b"content-length"), b"")
    return int(length) if length.isdigit() else 0


class FileSending:
    """What answers a request, with files sent by a shorter way."""

    def __init__(self, cycle: Any) -> None:
        self._cycle = cycle
        self._send: Callable[[Any], Awaitable[None]] = cycle.send

    async def __call__(self, message: Any) -> None:
        if message["type"] == PATHSEND:
            await self._send_file(Path(message["path"]))
            message = {"type": "http.response.body", "body": b""}
        await self._send(message)

    async def _send_file(self, path: Path) -> None:
        """Send the bytes that the head has promised. A connection on which that fails is worth nothing."""
        cycle = self._cycle
        transport = cycle.transport
        transport.flush()
        if cycle.disconnected:
            return
        if transport.get_write_buffer_size():  # earlier answers to one who asks ahead and reads slowly
            await self._send_read(path)
            return
        size, cycle.expected_content_length = cycle.expected_content_length, 0
        try:
            await send_file(path, size, transport.get_extra_info("socket").fileno())
        except ConnectionError:
            transport.abort()
        except BaseException:  # a cancellation too: what the head has promised will not come
            transport.abort()
            raise

    async def _send_read(self, path: Path) -> None:
        with await asyncio.to_thread(path.open, "rb") as file:
            while chunk := await asyncio.to_thread(file.read, _READ_BYTES):
                await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
