"""Bodies of requests from a socket to whoever takes them, by threads that never wait long for a slow sender.

What the framework would do instead costs several copies of every byte, and a turn of the event loop for each
piece. A piece fits into the processor's cache, where it stays until it is hashed and written.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
from collections.abc import Callable, Sequence

from .sendfile import in_thread

BODY = "farhand.body"
"""The extension of ASGI by which an application has a large body poured; what it says is who pours it."""

Write = Callable[[Sequence[bytes | memoryview]], object]
"""Takes the pieces that came next, in a thread; they are good for this call alone."""

PIECE_BYTES = 256 * 1024

TURN_BYTES_MAX = 16 * 1024 * 1024
"""A thread receives no more than this at a stretch: others wait for one too."""

_PATIENCE_MS = 5


class Cut(ConnectionError):
    """The connection has ended before all that was announced had come."""


class Reception:
    """What has ``begun`` to come over a connection that nobody else reads; ``left`` bytes are to follow."""

    def __init__(self, connection: socket.socket, begun: bytes | bytearray, left: int) -> None:
        self._connection = connection
        self._begun = begun
        self.left = left
        self._awaited = 0

    async def pour(self, write: Write, end: Callable[[], object]) -> None:
        """Have threads ``write`` all of it and then ``end``; one turn does where the sender is quick.

        Raises `Cut`, and what those raise. No thread is at it any more when this returns.
        """
        while not await in_thread(lambda: self._take(write, end)):
            await self._readable()

    def _take(self, write: Write, end: Callable[[], object]) -> bool:
        """Receive as much as comes without long waits; whether that was all."""
        if self._begun:
            begun, self._begun = self._begun, b""
            write((memoryview(begun),))
        buffer = memoryview(bytearray(min(PIECE_BYTES, self.left)))
        ready = select.poll()
        ready.register(self._connection, select.POLLIN)
        until = max(0, self.left - TURN_BYTES_MAX)
        wanted = self._await_piece()
        while self.left > until and ready.poll(_PATIENCE_MS):
            count = self._received(buffer[:wanted])
            self.left -= count
            if count:
                write((buffer[:count],))
            wanted = self._await_piece()
        if self.left:
            return False
        end()
        return True

    def _await_piece(self) -> int:
        """Be woken for a whole piece only, or for all that is left; how many bytes that is."""
        wanted = min(PIECE_BYTES, self.left)
        if wanted != self._awaited:
            self._awaited = wanted
            with contextlib.suppress(OSError):  # the connection has ended, or the system has no such thing
                self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, max(1, wanted))
        return wanted

    def _received(self, into: memoryview) -> int:
        try:
            count = self._connection.recv_into(into)
        except BlockingIOError:
            return 0
        if count == 0:
            raise Cut("the body was not sent to its end")
        return count

    async def _readable(self) -> None:
        """Wait until something has come, or the connection has ended."""
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self._connection, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._connection)
