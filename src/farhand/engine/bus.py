"""Notices of what changed, for whoever watches: the console, ``--follow``, the event stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

_BACKLOG_MAX = 1000


@dataclass(frozen=True, slots=True)
class Notice:
    """Something changed. ``kind``: run, logs (also tasks and metrics), worker, service, event, or overflow.

    ``overflow`` says that this subscriber was too slow and must look at everything again.
    """

    kind: str
    run: str | None = None
    record: Any = None


class Bus:
    """Hands every notice to every subscriber; a slow one loses notices, never holds up the others."""

    def __init__(self) -> None:
        self._queues: set[asyncio.Queue[Notice | None]] = set()
        self._observers: list[Callable[[Notice], None]] = []
        self._closed = False

    def observe(self, observer: Callable[[Notice], None]) -> None:
        """Call ``observer`` with every notice from now on, at once; it must be quick and never fail."""
        self._observers.append(observer)

    def publish(self, notice: Notice) -> None:
        """Hand ``notice`` to every subscriber; nothing happens once the bus is closed."""
        if self._closed:
            return
        for observer in self._observers:
            observer(notice)
        for queue in self._queues:
            if queue.qsize() >= _BACKLOG_MAX:
                while not queue.empty():
                    queue.get_nowait()
                queue.put_nowait(Notice("overflow"))
            queue.put_nowait(notice)

    @asynccontextmanager
    async def subscribe(self) -> AsyncGenerator[AsyncIterator[Notice]]:
        """What is published from now on; the iterator ends when the bus is closed."""
        queue: asyncio.Queue[Notice | None] = asyncio.Queue()
        self._queues.add(queue)
        if self._closed:
            queue.put_nowait(None)
        try:
            yield _drain(queue)
        finally:
            self._queues.discard(queue)

    def close(self) -> None:
        """End every subscription."""
        self._closed = True
        for queue in self._queues:
            queue.put_nowait(None)


async def _drain(queue: asyncio.Queue[Notice | None]) -> AsyncIterator[Notice]:
    while (notice := await queue.get()) is not None:
        yield notice
