"""A few threads that only read, each on a connection of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ..errors import StoreClosed, StoreFailed
from .guard import Connection
from .session import Session

T = TypeVar("T")

READERS = 3
"""Reads are short; more threads would only compete with the event loop."""


class Readers:
    """Runs read operations, each in one snapshot of the store."""

    def __init__(self, connect: Callable[[], Session]) -> None:
        self._connect = connect
        self._local = threading.local()
        self._sessions: list[Session] = []
        self._closed = False
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="farhand-store-reader")

    async def run(self, operation: Callable[[Connection], T]) -> T:
        """What ``operation`` returns."""
        if self._closed:
            raise StoreClosed
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, operation)

    async def close(self) -> None:
        """Wait for the reads under way and close their connections."""
        self._closed = True
        await asyncio.to_thread(self._pool.shutdown)
        while self._sessions:
            self._sessions.pop().close()

    def _read(self, operation: Callable[[Connection], T]) -> T:
        session, attempt = self._own(), 0
        while True:
            try:
                session.begin()
                return operation(session.guarded)
            except session.errors as error:
                pause_s = None if self._closed else session.again_s(error, attempt)
                if pause_s is None:
                    raise _told(session.translated(error)) from error
            finally:
                session.rollback()  # an open snapshot would hold the checkpoint
            attempt += 1
            time.sleep(pause_s)

    def _own(self) -> Session:
        session: Session | None = getattr(self._local, "session", None)
        if session is None:
            session = self._connect()
            self._sessions.append(session)
            self._local.session = session
        return session


def _told(error: Exception) -> Exception:
    if not isinstance(error, StoreFailed):
        return error
    return StoreFailed(f"the store cannot be read just now ({error.__cause__}); try again")
