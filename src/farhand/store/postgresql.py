"""PostgreSQL: its connections, and the one server that may write through them.

A server takes an advisory lock, which PostgreSQL frees when the session ends, and raises the epoch in the
row of `owner`. Every writing transaction looks at the epoch and holds the row, so a server that lost its
session, and with it the lock, can commit nothing once another has taken over. It leaves its number in that
row, too: one whose COMMIT went unanswered is looked up by it, and run again if it is not there. PostgreSQL's
own number would not do, since after a crash it gives those of lost transactions to others.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import psycopg
from psycopg import conninfo, errors
from psycopg.adapt import Dumper
from psycopg.postgres import types as builtin_types
from psycopg.pq import TransactionStatus

from ..errors import Conflict, StoreLocked, StoreTooNew, Unreachable, Usage
from .dump import dump
from .guard import Connection, Cursor
from .migrate import Migration
from .session import Fenced
from .sqlite import failed

log = logging.getLogger("farhand")

VERSION_MIN = 140000
RECONNECT_S = 10.0
"""How long a transaction waits for a PostgreSQL that restarts before it fails."""

RETRIES_MAX = 6
"""How often a transaction that PostgreSQL chose to give up is run again."""

NUL_SHOWN = "\u2400"
"""What U+0000 is kept as: PostgreSQL has no place for it in text."""

_LOCK = "hashtext('farhand'), hashtext(current_schema())"
_PARAMETER = re.compile(r"'[^']*'|\?|%")
LEAVING_S = 2.0
"""So long the session of a server that has ended may hold the database yet."""
_WRITE_SETTINGS = "-c lock_timeout=5s -c synchronous_commit=on"
_FAREWELLS = (errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow)
_LOST = (psycopg.OperationalError, psycopg.InterfaceError)


class _NotKept(psycopg.OperationalError):
    """The connection was lost at a COMMIT, and nothing of the transaction was kept."""


_PASSES = (errors.SerializationFailure, errors.DeadlockDetected, _NotKept)


class _TextDumper(Dumper):
    """Text of a type that the statement decides, without NUL."""

    def dump(self, obj: str) -> bytes:
        if "\0" in obj:
            obj = obj.replace("\0", NUL_SHOWN)
        return obj.encode()


class _FlagDumper(Dumper):
    """Flags are 0 and 1 in both dialects."""

    oid = builtin_types["int2"].oid

    def dump(self, obj: bool) -> bytes:
        return b"1" if obj else b"0"


@lru_cache(maxsize=1024)
def placeholders(sql: str) -> bytes:
    """The statement with the driver's placeholders for ours; quoted text stays as it is."""

    def replaced(match: re.Match[str]) -> str:
        found = match[0]
        return "%s" if found == "?" else found.replace("%", "%%")

    return _PARAMETER.sub(replaced, sql).encode()


class PostgresConnection(Connection):
    """Statements on PostgreSQL."""

    dialect = "postgresql"

    def __init__(self, session: PostgresSession) -> None:
        super().__init__()
        self._session = session

    def _execute(self, sql: str, parameters: Sequence[Any]) -> Cursor:
        return self._session.connection.execute(placeholders(sql), parameters)

    def _executemany(self, sql: str, parameters: Iterable[Sequence[Any]]) -> Cursor:
        cursor = self._session.connection.cursor()
        cursor.executemany(placeholders(sql), parameters)
        return cursor

    def _active(self) -> bool:
        return self._session.active


class PostgresSession:
    """Transactions on a connection that is made anew when it is lost."""

    errors: tuple[type[Exception], ...] = (psycopg.Error, Unreachable)
    cursor: type = psycopg.Cursor
    marks_first = True  # without one, a failed statement that an operation makes up for would end everything

    def __init__(self, url: str, begin: str, settings: str = "") -> None:
        self.guarded = PostgresConnection(self)
        self._url = url
        self._begin = begin.encode()
        self._settings = settings
        self._trouble_since: float | None = None
        self._connection: psycopg.Connection[Any] | None = self._connect()

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """The driver's connection."""
        if self._connection is None or self._connection.closed:
            self._connection = None
            self._connection = self._connect()
            self._reconnected()
        return self._connection

    @property
    def active(self) -> bool:
        """Whether a transaction is open."""
        connection = self._connection
        if connection is None or connection.closed:
            return False
        return connection.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR)

    def begin(self) -> None:
        """Open a transaction, connecting again where the connection was lost."""
        self.connection.execute(self._begin)

    def commit(self) -> None:
        """Make what was written durable."""
        self.connection.execute(b"COMMIT")
        self._trouble_since = None

    def rollback(self) -> None:
        """Forget what was written."""
        self.guarded.forget_reserved()
        if self.active:
            try:
                self.connection.execute(b"ROLLBACK")
                self._trouble_since = None
            except _LOST:
                self._connection = None

    def mark(self) -> None:
        """Begin an operation."""
        self.connection.execute(b"SAVEPOINT operation")

    def undo(self) -> None:
        """Forget what the operation wrote."""
        self.guarded.forget_reserved()
        self.connection.execute(b"ROLLBACK TO operation")
        self.keep()

    def keep(self) -> None:
        """Keep what the operation wrote."""
        self.connection.execute(b"RELEASE operation")

    def again_s(self, error: Exception, attempt: int) -> float | None:
        """Soon, for a transaction that was given up or not kept; within `RECONNECT_S`, for a lost one."""
        if isinstance(error, _PASSES):
            return min(0.5, 0.01 * 2**attempt) if attempt < RETRIES_MAX else None
        if not self._is_lost(error):
            return None
        now = time.monotonic()
        if self._trouble_since is None:
            self._trouble_since = now
        if now - self._trouble_since > RECONNECT_S:
            self._trouble_since = None
            return None
        return 0.05 if attempt == 0 else 0.25

    def translated(self, error: Exception) -> Exception:
        """The error as callers know it."""
        if isinstance(error, errors.NumericValueOutOfRange):
            return OverflowError(str(error))
        if isinstance(error, psycopg.IntegrityError):
            refused = Conflict(f"the store holds something else under that id ({error})")
            refused.__cause__ = error
            return refused
        return failed(error) if isinstance(error, psycopg.OperationalError) else error

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()

    def _is_lost(self, error: Exception) -> bool:
        """Whether an error means that the connection is gone; PostgreSQL may say so before it closes it."""
        if isinstance(error, _FAREWELLS) and self._connection is not None:
            self._connection.close()
        if not isinstance(error, (*_LOST, Unreachable)):
            return False
        return self._connection is None or self._connection.closed

    def _reconnected(self) -> None:
        """Called when a lost connection was made anew."""

    def _connect(self) -> psycopg.Connection[Any]:
        return connect(self._url, self._settings)


class OwningSession(PostgresSession):
    """The session that writes: it owns the database, and looks at every transaction whether it still does."""

    def __init__(self, url: str) -> None:
        self._epoch = 0
        self._number = 0
        super().__init__(url, "BEGIN", _WRITE_SETTINGS)

    def take(self) -> None:
        """Raise the epoch under the advisory lock, which is held already."""
        row = self.connection.execute(
            b"INSERT INTO owner (id, epoch, host, pid, since) VALUES (1, 1, %s, %s, %s) ON CONFLICT (id)"
            b" DO UPDATE SET epoch = owner.epoch + 1, host = excluded.host, pid = excluded.pid,"
            b" since = excluded.since RETURNING epoch",
            (socket.gethostname(), os.getpid(), time.time()),
        ).fetchone()
        self._epoch = int(row[0]) if row else 0

    def lock(self) -> None:
        """Take the advisory lock. Raises `StoreLocked`, naming who has it.

        PostgreSQL may notice a moment after the end of a server that its session has ended.
        """
        deadline = time.monotonic() + LEAVING_S
        while not self._try_lock():
            if time.monotonic() > deadline:
                raise StoreLocked(f"{_owner(self.connection)} uses {_name(self._url)}; stop it first")
            time.sleep(0.02)

    def begin(self) -> None:
        """Open a transaction in which no other server can take over."""
        super().begin()
        row = self.connection.execute(
            b"UPDATE owner SET written = written + 1 WHERE id = 1 AND epoch = %s RETURNING written",
            (self._epoch,),
        ).fetchone()
        if row is None:
            raise self._taken_over()
        self._number = row[0]

    def commit(self) -> None:
        """Make what was written durable; one whose answer was lost is looked up."""
        try:
            super().commit()
        except _LOST as error:
            if not self._is_lost(error):
                raise
            if not self._was_committed():
                raise _NotKept(str(error)) from error

    def _was_committed(self) -> bool:
        """By the number that it left. Nothing of it is under way any more: the lost session has ended, since
        the lock that it had is this one's."""
        deadline = time.monotonic() + RECONNECT_S
        while True:
            try:
                row = self.connection.execute(b"SELECT epoch, written FROM owner WHERE id = 1").fetchone()
                break
            except (*_LOST, Unreachable):
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.1)
        if row is None or row[0] != self._epoch:
            raise self._taken_over()
        return row[1] == self._number

    def _taken_over(self) -> Fenced:
        return Fenced(f"{_owner(self.connection)} has taken {_name(self._url)} over")

    def _reconnected(self) -> None:
        deadline = time.monotonic() + RECONNECT_S
        while not self._try_lock():  # the lost session may not have noticed yet that it is lost
            if time.monotonic() > deadline:
                raise self._taken_over()
            time.sleep(0.1)

    def _try_lock(self) -> bool:
        row = self.connection.execute(f"SELECT pg_try_advisory_lock({_LOCK})".encode()).fetchone()
        return bool(row and row[0])


def open_writing(url: str, migrations: Sequence[Migration], backups: Path | None) -> OwningSession:
    """Own the database and bring it to the newest schema, after a dump to the directory ``backups``, if any.

    Raises `StoreLocked`, `StoreTooNew`, `Unreachable`, or `Usage` when it cannot hold a store.
    """
    session = OwningSession(url)
    try:
        _refuse_unfit(session.connection, url)
        session.lock()
        _migrate(session.connection, migrations, url, backups)
        session.take()
    except BaseException:  # the lock must not outlive an open that failed
        session.close()
        raise
    return session


def open_reading(url: str) -> PostgresSession:
    """A session that cannot write."""
    return PostgresSession(url, "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")


def connect(url: str, settings: str = "") -> psycopg.Connection[Any]:
    """A connection in autocommit mode. Raises `Usage` or `Unreachable`."""
    try:
        given: dict[str, Any] = dict(conninfo.conninfo_to_dict(url))
        options = f"{given.get('options') or ''} {settings}".strip()
        given |= {"options": options, "application_name": f"farhand {os.getpid()}"}
        given.setdefault("connect_timeout", 5)
        connection = psycopg.connect(conninfo.make_conninfo(**given), autocommit=True)
    except psycopg.ProgrammingError as error:
        raise Usage(f"database: not an address of PostgreSQL: {error}") from error
    except psycopg.OperationalError as error:
        reason = str(error).strip().splitlines()[0].removeprefix("connection failed: ")
        raise Unreachable(f"PostgreSQL at {_name(url)} cannot be used: {reason}") from error
    connection.adapters.register_dumper(str, _TextDumper)
    connection.adapters.register_dumper(bool, _FlagDumper)
    return connection


def _name(url: str) -> str:
    """The address without its password."""
    given = conninfo.conninfo_to_dict(url)
    return f"{given.get('host', 'localhost')}:{given.get('port', 5432)}/{given.get('dbname', '')}"


def _owner(connection: psycopg.Connection[Any]) -> str:
    try:
        row = connection.execute(b"SELECT host, pid FROM owner WHERE id = 1").fetchone()
    except errors.UndefinedTable:
        row = None
    return "another farhand server" if row is None else f"the farhand server on {row[0]}, process {row[1]},"


def _refuse_unfit(connection: psycopg.Connection[Any], url: str) -> None:
    if connection.info.server_version < VERSION_MIN:
        raise Usage(f"{_name(url)} is PostgreSQL {connection.info.server_version // 10000}; 14 is the least")
    row = connection.execute(b"SHOW server_encoding").fetchone()
    if row is None or row[0] != "UTF8":
        raise Usage(f"{_name(url)} does not keep its text as UTF8; create the database with ENCODING 'UTF8'")


def _migrate(
    connection: psycopg.Connection[Any], migrations: Sequence[Migration], url: str, backups: Path | None
) -> None:
    """Run what is missing, each in one transaction together with its number."""
    connection.execute(
        b"CREATE TABLE IF NOT EXISTS schema_migrations (number BIGINT PRIMARY KEY, name TEXT NOT NULL)"
    )
    row = connection.execute(b"SELECT coalesce(max(number), 0) FROM schema_migrations").fetchone()
    found, known = int(row[0]) if row else 0, migrations[-1].number
    if found > known:
        raise StoreTooNew(
            f"{_name(url)} was written by a newer farhand (schema {found}, this one knows {known}); "
            "upgrade this one. Nothing was changed.",
            found=found,
            known=known,
        )
    if 0 < found < known and backups is not None:
        log.info("the store is of schema %s and is dumped before it is upgraded", found)
        schema = connection.execute(b"SELECT current_schema()").fetchone()
        dump(url, _name(url), schema[0] if schema else "public", backups / f"postgresql.schema-{found}.dump")
    for migration in migrations:
        if migration.number > found:
            if found > 0:
                log.info("the store is upgraded by %s, the last is %s", migration.name, migrations[-1].name)
            with connection.transaction():
                connection.execute(migration.sql.encode())
                connection.execute(
                    b"INSERT INTO schema_migrations (number, name) VALUES (%s, %s)",
                    (migration.number, migration.name),
                )
