"""The SQLite database: one writing connection, a few reading ones, and the lock that makes it so.

SQLite before 3.51.3 can corrupt a file in WAL mode when two connections write or checkpoint at once, so
one process owns the file and one connection in it does both.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from .filesystem import refuse_network
from .guard import Connection
from .lock import HomeLock
from .migrate import Migration, migrate, packaged, refuse_newer
from .readers import Readers
from .writer import Writer

T = TypeVar("T")
OnDeath = Callable[[BaseException], None]

FILE_NAME = "store.db"
LOCK_NAME = "store.lock"

_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA cache_size = -16384",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA journal_size_limit = 67108864",
)


class Database:
    """Runs operations: `write` on the writer's thread, durable when it returns; `read` in a snapshot."""

    def __init__(self, lock: HomeLock, writer: Writer, readers: Readers, writing: sqlite3.Connection) -> None:
        self._lock = lock
        self._writer = writer
        self._readers = readers
        self._writing = writing

    @classmethod
    async def open(
        cls, path: Path, on_death: OnDeath | None = None, migrations: Sequence[Migration] | None = None
    ) -> Database:
        """Take the home, migrate the store and start the threads.

        Raises `StoreLocked` when another process owns the home, `StoreTooNew` when the file is from a
        newer farhand, `Usage` when the home lies on a network file system.
        """
        lock, connection, file = await asyncio.to_thread(_prepare, path, migrations or packaged())
        return cls(lock, Writer(connection, on_death), Readers(file), connection)

    @property
    def commits(self) -> int:
        """Transactions committed since the store was opened."""
        return self._writer.commits

    @property
    def operations(self) -> int:
        """Operations run since the store was opened."""
        return self._writer.operations

    async def write(self, operation: Callable[[Connection], T]) -> T:
        """What ``operation`` returns, once it is on disk.

        Raises what the operation raises, with nothing of it kept; `StoreFailed` when it could not be
        committed; `StoreClosed` after `close`.
        """
        return await self._writer.submit(operation)

    async def read(self, operation: Callable[[Connection], T]) -> T:
        """What ``operation`` reads."""
        return await self._readers.run(operation)

    async def close(self) -> None:
        """Commit what waits, end the threads, give the home up. May be called more than once."""
        await self._readers.close()
        await self._writer.close()
        await asyncio.to_thread(self._writing.close)
        self._lock.release()


def _prepare(path: Path, migrations: Sequence[Migration]) -> tuple[HomeLock, sqlite3.Connection, Path]:
    if path.is_dir():
        path = path / FILE_NAME
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    refuse_network(path.parent)
    lock = HomeLock(path.with_name(LOCK_NAME))
    try:
        refuse_newer(path, migrations)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5.0)
        try:
            for pragma in _PRAGMAS:
                connection.execute(pragma)
            migrate(connection, path, migrations)
        except BaseException:
            connection.close()
            raise
    except BaseException:
        lock.release()
        raise
    return lock, connection, path
