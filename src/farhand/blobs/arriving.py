"""What comes in from outside: poured from its connection by threads, or in pieces from the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Sequence
from typing import Protocol

HELD_BYTES_MAX = 2 * 1024 * 1024
"""What comes in no more bytes than these is written in one turn of a thread."""

Write = Callable[[Sequence[bytes | memoryview]], object]
"""Takes the pieces that came next; they are good for this call alone."""


class Body(Protocol):
    """Something that arrives."""

    async def pour(self, write: Write, end: Callable[[], object]) -> None:
        """Have a thread ``write`` what comes, and ``end`` it once that was all. Raises what those raise."""
        ...


class Streamed:
    """A body that comes in pieces from the event loop. What came before an error is written as well."""

    def __init__(self, chunks: AsyncIterable[bytes]) -> None:
        self._chunks = chunks

    async def pour(self, write: Write, end: Callable[[], object]) -> None:
        """Many pieces at a time, and the last ones with the end."""
        held: list[bytes] = []
        size = 0
        try:
            async for chunk in self._chunks:
                held.append(chunk)
                size += len(chunk)
                if size >= HELD_BYTES_MAX:
                    taken, held, size = held, [], 0
                    await asyncio.to_thread(write, taken)
        except Exception:  # a connection that broke: what it has brought is to be kept
            if held:
                await asyncio.to_thread(write, held)
            raise
        await asyncio.to_thread(_finish, write, held, end)


def _finish(write: Write, pieces: Sequence[bytes], end: Callable[[], object]) -> None:
    if pieces:
        write(pieces)
    end()
