"""Connections that send once for each turn of the event loop, whatever was written in it.

A response is written as a head and a body, and a worker is told of several things at once: each write would
be a system call of its own, in which the store's writer takes the interpreter. And a websocket that is read
by a task which waits for it already need not stop listening between two frames.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

BYTES_MAX = 64 * 1024
"""So much is never held back: whoever writes more is told when it is too much for the other side."""


class Gathering:
    """A transport that writes at the end of the loop's turn what was given to it meanwhile.

    Whoever pauses reading and goes on in the same turn, or the next one, has not paused at all.
    """

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._written: list[bytes] = []
        self._size = 0
        self._reading = True
        self._reads = True
        self._settling = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, content: bytes) -> None:
        """Send ``content`` after all that was written before it."""
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

    def resume_reading(self) -> None:
        """Read again."""
        self._reading = True
        if not self._reads:
            self._reads = True
            self._transport.resume_reading()

    def _settle(self) -> None:
        self._settling = False
        if not self._reading and self._reads:
            self._reads = False
            self._transport.pause_reading()


class GatheringProtocol(HttpToolsProtocol):
    """uvicorn's connection over such a transport; a websocket takes it over with the connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        gathering: Any = Gathering(transport, self.loop)
        super().connection_made(gathering)
