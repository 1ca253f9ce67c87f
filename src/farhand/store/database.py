"""The open database, whichever dialect it speaks: one thread that writes, a few that read.

SQLite is a file in the home, which one process owns. PostgreSQL is a server elsewhere, whose database one
farhand server owns; its home still holds the keys, the blobs and the journals of scripts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ..errors import Usage
from .answers import Answer
from .filesystem import refuse_network
from .guard import Connection
from .lock import LOCK_NAME, HomeLock
from .migrate import Migration, migrate, packaged, refuse_newer
from .readers import Readers
from .session import Session
from .sqlite import SqliteSession, naming_damage, open_reading, open_writing, refuse_damaged
from .state import StoreState, examine
from .writer import Writer

T = TypeVar("T")
OnDeath = Callable[[BaseException], None]

FILE_NAME = "store.db"


class Database:
    """Runs operations: `write` on the writer's thread, durable when it returns; `read` in a snapshot."""

    def __init__(
        self, lock: HomeLock, session: Session, connect: Callable[[], Session], on_death: OnDeath | None
    ) -> None:
        self._lock = lock
        self._session = session
        self._writer = Writer(session, on_death)
        self._readers = Readers(connect)
        self._connect = connect

    @classmethod
    async def open(
        cls,
        path: Path,
        on_death: OnDeath | None = None,
        migrations: Sequence[Migration] | None = None,
        url: str = "",
        *,
        without_backup: bool = False,
    ) -> Database:
        """Take the home, migrate the store, after a backup unless told otherwise, and start the threads.

        Without a ``url`` of PostgreSQL the store is the SQLite file ``path``. Raises `StoreLocked` when
        another process owns the home or the database, `StoreTooNew` when it is from a newer farhand,
        `Usage` when the home lies on a network file system, the url is none or a backup cannot be made.
        """
        lock, session, connect = await asyncio.to_thread(_prepare, path, migrations, url, without_backup)
        return cls(lock, session, connect, on_death)

    @property
    def dialect(self) -> str:
        """``sqlite`` or ``postgresql``."""
        return self._session.guarded.dialect

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
        committed; `StoreClosed` after `close`. An operation may be run more than once.
        """
        return await self.submit(operation)

    def submit(self, operation: Callable[[Connection], T]) -> Answer[T]:
        """As `write`, and in the queue when this returns: what is submitted later comes after it."""
        return self._writer.submit(operation)

    def answer_within(self, context: AbstractContextManager[Any]) -> None:
        """Enter ``context`` whenever those whose operations share a commit are answered."""
        self._writer.answering = context

    async def read(self, operation: Callable[[Connection], T]) -> T:
        """What ``operation`` reads."""
        return await self._readers.run(operation)

    async def state(self) -> StoreState:
        """What condition the store is in. Its own check reads all of it, on a thread beside the others."""
        return await asyncio.to_thread(examine, self._connect)

    async def close(self) -> None:
        """Commit what waits, end the threads, give the home up. May be called more than once."""
        await self._readers.close()
        await self._writer.close()
        await asyncio.to_thread(self._session.close)
        self._lock.release()

    @property
    def _writing(self) -> Any:
        """The driver's own connection that writes; for tests, which provoke it to fail."""
        session: Any = self._session
        return session.connection


_Opened = tuple[HomeLock, Session, Callable[[], Session]]


def _prepare(path: Path, migrations: Sequence[Migration] | None, url: str, without_backup: bool) -> _Opened:
    if path.is_dir():
        path = path / FILE_NAME
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not url:
        refuse_network(path.parent)
    lock = HomeLock(path.with_name(LOCK_NAME))
    try:
        if url:
            return (lock, *_postgresql(url, migrations, None if without_backup else path.parent))
        return (lock, *_sqlite(path, migrations or packaged("sqlite"), without_backup))
    except BaseException:  # the home must not stay locked
        lock.release()
        raise


def _sqlite(
    path: Path, migrations: Sequence[Migration], without_backup: bool
) -> tuple[Session, Callable[[], Session]]:
    with naming_damage(path):
        refuse_newer(path, migrations)
        refuse_damaged(path)
        connection = open_writing(path)
        try:
            migrate(connection, path, migrations, without_backup=without_backup)
        except BaseException:  # nobody else would close it
            connection.close()
            raise
    return SqliteSession(connection), partial(open_reading, path)


def _postgresql(
    url: str, migrations: Sequence[Migration] | None, backups: Path | None
) -> tuple[Session, Callable[[], Session]]:
    if not url.startswith(("postgresql://", "postgres://")):
        raise Usage("database: give the address of a PostgreSQL database, like postgresql://user@host/name")
    try:
        from . import postgresql  # noqa: PLC0415 its driver is an extra
    except ImportError as error:
        raise Usage(f"PostgreSQL needs a driver ({error}): pip install 'psycopg[binary]'") from error
    session = postgresql.open_writing(url, migrations or packaged("postgresql"), backups)
    return session, partial(postgresql.open_reading, url)
