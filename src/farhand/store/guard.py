"""The connection that operations see: it runs statements and leaves the transaction to the writer.

One operation is a part of a commit it shares with others, so whatever would end, begin or escape the
transaction is refused, and so is any statement after the transaction has ended (a full disk ends it).
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from ..errors import StoreFailed

_COMMENTS = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_FIRST_WORD = re.compile(r"\s*(\w+)")
_OR_ROLLBACK = re.compile(r"\bOR\s+ROLLBACK\b", re.IGNORECASE)
_REFUSED = frozenset(
    ["BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE", "ATTACH", "DETACH", "VACUUM", "PRAGMA"]
)


class OperationRefused(RuntimeError):
    """An operation tried to end, begin or escape the transaction it shares; that is a mistake in it."""


class Cursor(sqlite3.Cursor):
    """A cursor without scripts, which would commit."""

    def executescript(self, _script: str) -> NoReturn:
        """Refused: a script commits whatever is under way."""
        raise OperationRefused("executescript commits the transaction that operations share")


class Connection:
    """What an operation may do: single statements, inside the transaction that is open."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._vetted: set[str] = set()

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Run one statement."""
        self._vet(sql)
        return self._connection.cursor(Cursor).execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]]) -> sqlite3.Cursor:
        """Run one statement for each row of parameters; the cursor's rowcount is their sum."""
        self._vet(sql)
        return self._connection.cursor(Cursor).executemany(sql, parameters)

    def executescript(self, _script: str) -> NoReturn:
        """Refused: a script commits whatever is under way."""
        raise OperationRefused("executescript commits the transaction that operations share")

    def _vet(self, sql: str) -> None:
        if not self._connection.in_transaction:
            raise StoreFailed("the transaction has ended under this operation; nothing of it was kept")
        if sql in self._vetted:
            return
        bare = _COMMENTS.sub(" ", sql)
        word = _FIRST_WORD.match(bare)
        if word is None or word.group(1).upper() in _REFUSED or _OR_ROLLBACK.search(bare):
            raise OperationRefused(f"operations share one transaction and may not run: {sql[:60]}")
        self._vetted.add(sql)
