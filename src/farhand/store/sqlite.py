"""SQLite: its connections, and the one file they are on.

SQLite before 3.51.3 can corrupt a file in WAL mode when two connections write or checkpoint at once, so
one process owns the file and one connection in it does both.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

from ..errors import Conflict, StoreDamaged, StoreFailed
from .guard import Connection, Cursor, OperationRefused

_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA cache_size = -16384",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA journal_size_limit = 67108864",
)

_STATEMENTS_KEPT = 512
"""Prepared statements of the connection that writes; those with a mark for each of several rows are many."""

_ENVIRONMENT = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
    }
)
"""Primary codes of errors that are the machine's, not the operation's."""


class _Cursor(sqlite3.Cursor):
    """A cursor without scripts, which would commit."""

    def executescript(self, _script: str) -> NoReturn:
        """Refused: a script commits whatever is under way."""
        raise OperationRefused("executescript commits the transaction that operations share")


class SqliteConnection(Connection):
    """Statements on SQLite."""

    dialect = "sqlite"

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__()
        self._connection = connection

    def _execute(self, sql: str, parameters: Sequence[Any]) -> Cursor:
        return self._connection.cursor(_Cursor).execute(sql, parameters)

    def _executemany(self, sql: str, parameters: Iterable[Sequence[Any]]) -> Cursor:
        return self._connection.cursor(_Cursor).executemany(sql, parameters)

    def _active(self) -> bool:
        return self._connection.in_transaction


class SqliteSession:
    """Transactions on one connection; ``begin`` is how they are opened."""

    errors: tuple[type[Exception], ...] = (sqlite3.Error,)
    cursor: type = sqlite3.Cursor
    marks_first = False

    def __init__(self, connection: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> None:
        self.connection = connection
        self.guarded = SqliteConnection(connection)
        self._begin = begin

    @property
    def active(self) -> bool:
        """Whether a transaction is open; a full disk ends one unasked."""
        return self.connection.in_transaction

    def begin(self) -> None:
        """Open a transaction."""
        self.connection.execute(self._begin)

    def commit(self) -> None:
        """Make what was written durable."""
        self.connection.execute("COMMIT")

    def rollback(self) -> None:
        """Forget what was written."""
        self.guarded.forget_reserved()
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def mark(self) -> None:
        """Begin an operation."""
        self.connection.execute("SAVEPOINT operation")

    def undo(self) -> None:
        """Forget what the operation wrote."""
        self.guarded.forget_reserved()
        self.connection.execute("ROLLBACK TO operation")
        self.keep()

    def keep(self) -> None:
        """Keep what the operation wrote."""
        self.connection.execute("RELEASE operation")

    def again_s(self, error: Exception, attempt: int) -> float | None:
        """Never: the only writer has nobody to wait for."""
        return None

    def translated(self, error: Exception) -> Exception:
        """The error as callers know it."""
        if isinstance(error, sqlite3.IntegrityError):
            refused = Conflict(f"the store holds something else under that id ({error})")
            refused.__cause__ = error
            return refused
        if isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & 0xFF in _ENVIRONMENT:
            return failed(error)
        return error

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


def failed(cause: Exception) -> StoreFailed:
    """The failure that callers see, whatever the driver calls it."""
    failure = StoreFailed(
        f"the store could not commit ({cause}); nothing of this change was kept, so it may be tried again"
    )
    failure.__cause__ = cause
    return failure


@contextmanager
def naming_damage(path: Path) -> Generator[None]:
    """Whatever says that the file is damaged becomes `StoreDamaged`."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF not in (
            sqlite3.SQLITE_CORRUPT,
            sqlite3.SQLITE_NOTADB,
        ):
            raise
        raise StoreDamaged(
            f"{path} is no store, or is damaged ({error}); restore a backup with `farhand restore`."
            " Nothing was changed."
        ) from error


CHECKED_BYTES_MAX = 64 * 1024 * 1024
"""A larger store is not read through at every start, but when somebody asks the doctor."""


def refuse_damaged(path: Path) -> None:
    """Read the end of every table, and all of a small store, without writing.

    Raises the driver's error where that fails.
    """
    if not path.exists() or path.stat().st_size == 0:
        return
    session = open_reading(path)
    try:
        tables = session.connection.execute(
            "SELECT name, sql LIKE '%) WITHOUT ROWID' FROM sqlite_master"
            " WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        ).fetchall()
        for table, keyed in tables:
            last = _key_of(session.connection, table) if keyed else "rowid DESC"
            session.connection.execute(f'SELECT * FROM "{table}" ORDER BY {last} LIMIT 1').fetchall()
        if path.stat().st_size <= CHECKED_BYTES_MAX:
            found = str(session.connection.execute("PRAGMA quick_check(1)").fetchone()[0])
            if found != "ok":
                damage = sqlite3.DatabaseError(" ".join(found.split()))
                damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
                raise damage
    finally:
        session.close()


def _key_of(connection: sqlite3.Connection, table: str) -> str:
    """What a table that is kept by its key is read by from its end."""
    names = connection.execute("SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk", (table,))
    return ", ".join(f'"{name}" DESC' for (name,) in names.fetchall())


def open_writing(path: Path) -> sqlite3.Connection:
    """The one connection that writes and checkpoints, in autocommit mode."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    connection = sqlite3.connect(
        path,
        isolation_level=None,
        check_same_thread=False,
        timeout=5.0,
        cached_statements=_STATEMENTS_KEPT,
    )
    try:
        for pragma in _PRAGMAS:
            connection.execute(pragma)
    except BaseException:  # nobody else would close it
        connection.close()
        raise
    return connection


def open_reading(path: Path) -> SqliteSession:
    """A connection that can neither write nor checkpoint."""
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode=ro",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=5.0,
    )
    connection.execute("PRAGMA query_only = ON")
    return SqliteSession(connection, "BEGIN")
