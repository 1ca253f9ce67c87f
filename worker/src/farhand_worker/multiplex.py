"""Many connections over one pair of byte streams: the server's ssh to a login node carries all its workers.

A frame is a kind (1 byte), the number of a stream (4) and the length of what follows (4), big-endian.
``OPEN`` begins a stream, ``DATA`` is of it, ``END`` says that nothing more comes, ``CREDIT`` that so many
bytes were taken: no more than `WINDOW_BYTES` of a stream are under way, so that one that is not read holds up
no other. ``HELLO`` comes once, from the relay, and holds JSON. Before it stands `MARK`; what a login shell
prints before that is passed over.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections import deque
from typing import Awaitable, Callable, Deque, Dict, Optional

from .racing import until_one_ends

HELLO, OPEN, DATA, END, CREDIT = range(5)
MARK = b"farhand-relay 1\n"
FRAME_BYTES_MAX = 64 * 1024
WINDOW_BYTES = 1024 * 1024
CHUNK_BYTES = 32 * 1024
_NOISE_BYTES_MAX = 64 * 1024
_HEAD = struct.Struct(">BII")
_COUNT = struct.Struct(">I")


class Broken(Exception):
    """The other end does not speak this, or has gone."""


class Stream:
    """One connection. `read` gives b"" at its end."""

    def __init__(self, number: int, send: Callable[[int, int, bytes], Awaitable[None]]) -> None:
        self.number = number
        self._send = send
        self._arrived: Deque[bytes] = deque()
        self._news = asyncio.Event()
        self._credit = WINDOW_BYTES
        self._may_write = asyncio.Event()
        self._may_write.set()
        self.ended = False

    async def read(self) -> bytes:
        """What came next; whoever sent it may send as much again."""
        while not self._arrived and not self.ended:
            self._news.clear()
            await self._news.wait()
        if not self._arrived:
            return b""
        data = self._arrived.popleft()
        if not self.ended:
            await self._send(CREDIT, self.number, _COUNT.pack(len(data)))
        return data

    async def write(self, data: bytes) -> None:
        """Send it, as the other end takes it. Raises `Broken` once that has ended."""
        for start in range(0, len(data), CHUNK_BYTES):
            piece = data[start : start + CHUNK_BYTES]
            while self._credit < len(piece) and not self.ended:
                self._may_write.clear()
                await self._may_write.wait()
            if self.ended:
                raise Broken("the other end has ended this connection")
            self._credit -= len(piece)
            await self._send(DATA, self.number, piece)

    async def end(self) -> None:
        """Nothing more is sent."""
        await self._send(END, self.number, b"")

    def arrived(self, data: bytes) -> None:
        """Something came for it."""
        self._arrived.append(data)
        self._news.set()

    def credited(self, count: int) -> None:
        """The other end has taken so much."""
        self._credit += count
        self._may_write.set()

    def close(self) -> None:
        """Nothing more comes, and nothing more is taken."""
        self.ended = True
        self._news.set()
        self._may_write.set()


class Multiplex:
    """One end. ``opened`` is called with every stream that the other end opens, and serves it."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        opened: Optional[Callable[[Stream], Awaitable[None]]] = None,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._opened = opened
        self._streams: Dict[int, Stream] = {}
        self._served: Dict[int, asyncio.Task[None]] = {}
        self._numbers = 0
        self._lock = asyncio.Lock()

    async def greet(self, hello: bytes) -> None:
        """Say what this end is; the other waits for it."""
        self._writer.write(MARK)
        await self._send(HELLO, 0, hello)

    async def greeted(self) -> bytes:
        """What the other end says it is, after whatever a login shell has printed. Raises `Broken`."""
        noise = b""
        while not noise.endswith(MARK):
            byte = await self._reader.read(1)
            if not byte or len(noise) > _NOISE_BYTES_MAX:
                raise Broken(noise.decode(errors="replace").strip()[-300:] or "it ended and said nothing")
            noise += byte
        kind, _, hello = await self._frame()
        if kind != HELLO:
            raise Broken("it did not say what it is")
        return hello

    async def open(self) -> Stream:
        """A new stream to the other end."""
        self._numbers += 1
        stream = self._streams[self._numbers] = Stream(self._numbers, self._send)
        await self._send(OPEN, stream.number, b"")
        return stream

    def forget(self, stream: Stream) -> None:
        """The stream is over here."""
        self._streams.pop(stream.number, None)
        stream.close()

    async def run(self) -> None:
        """Until the other end has gone; always raises `Broken`."""
        try:
            while True:
                self._take(*await self._frame())
        finally:
            for stream in list(self._streams.values()):
                stream.close()
            for task in self._served.values():
                task.cancel()
            await asyncio.gather(*self._served.values(), return_exceptions=True)

    async def _frame(self) -> tuple[int, int, bytes]:
        try:
            kind, number, length = _HEAD.unpack(await self._reader.readexactly(_HEAD.size))
            if kind > CREDIT or length > FRAME_BYTES_MAX or (kind == CREDIT and length != _COUNT.size):
                raise Broken("what came is no frame")
            return kind, number, await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise Broken("the connection has ended") from error

    def _take(self, kind: int, number: int, data: bytes) -> None:
        if kind == OPEN and self._opened is not None:
            stream = self._streams[number] = Stream(number, self._send)
            self._served[number] = asyncio.ensure_future(self._serve(stream, self._opened))
            return
        stream_or_none = self._streams.get(number)
        if stream_or_none is None:
            return  # it has ended here, and the other end does not know yet
        if kind == DATA:
            stream_or_none.arrived(data)
        elif kind == CREDIT:
            stream_or_none.credited(_COUNT.unpack(data)[0])
        elif kind == END:
            stream_or_none.close()

    async def _serve(self, stream: Stream, serve: Callable[[Stream], Awaitable[None]]) -> None:
        try:
            await serve(stream)
        finally:
            self.forget(stream)
            self._served.pop(stream.number, None)

    async def _send(self, kind: int, number: int, data: bytes) -> None:
        async with self._lock:  # frames of two streams may not lie within each other
            self._writer.write(_HEAD.pack(kind, number, len(data)) + data)
            try:
                await self._writer.drain()
            except ConnectionError as error:
                raise Broken("the connection has ended") from error


async def join(stream: Stream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry a connection over a stream, both ways, until either end has ended."""

    async def out() -> None:
        while True:
            data = await reader.read(CHUNK_BYTES)
            if not data:
                return
            await stream.write(data)

    async def back() -> None:
        while True:
            data = await stream.read()
            if not data:
                return
            writer.write(data)
            await writer.drain()

    try:
        await until_one_ends(out(), back())
    finally:
        with contextlib.suppress(Broken):
            await stream.end()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
