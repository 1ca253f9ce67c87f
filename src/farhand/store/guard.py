"""The connection that operations see: it runs statements and leaves the transaction to the writer.

One operation is a part of a commit it shares with others, so whatever would end, begin or escape the
transaction is refused, and so is any statement after the transaction has ended (a full disk ends it).

Statements are written with ``?`` for a parameter and run on either dialect; where the dialects differ,
both are written out in a `Variants`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Protocol

from ..errors import StoreFailed

_COMMENTS = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_FIRST_WORD = re.compile(r"\s*(\w+)")
_OR_ROLLBACK = re.compile(r"\bOR\s+ROLLBACK\b", re.IGNORECASE)
_REFUSED = frozenset(
    [
        *("BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "PREPARE", "SAVEPOINT", "RELEASE"),
        *("ATTACH", "DETACH", "VACUUM", "PRAGMA", "SET", "RESET"),
    ]
)


class OperationRefused(RuntimeError):
    """An operation tried to end, begin or escape the transaction it shares; that is a mistake in it."""


@dataclass(frozen=True, slots=True)
class Variants:
    """One statement as each dialect has it."""

    sqlite: str
    postgresql: str


class Cursor(Protocol):
    """What a statement found."""

    @property
    def rowcount(self) -> int:
        """How many rows it changed."""
        ...

    def fetchone(self) -> Any:
        """The next row, or None."""
        ...

    def fetchall(self) -> list[Any]:
        """The rows that are left."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Connection:
    """What an operation may do: single statements, inside the transaction that is open."""

    dialect: ClassVar[str]

    def __init__(self) -> None:
        self._vetted: set[str] = set()
        self.reserved = range(0)
        """Lease numbers that this transaction, or one before it, has taken from the store."""

    def execute(self, sql: str | Variants, parameters: Sequence[Any] = ()) -> Cursor:
        """Run one statement; one that was looked at before goes a short way."""
        text = sql if type(sql) is str else getattr(sql, self.dialect)
        if text not in self._vetted or not self._active():
            self._vet(text)
        return self._execute(text, parameters)

    def executemany(self, sql: str | Variants, parameters: Iterable[Sequence[Any]]) -> Cursor:
        """Run one statement for each row of parameters; the cursor's rowcount is their sum."""
        text = sql if type(sql) is str else getattr(sql, self.dialect)
        if text not in self._vetted or not self._active():
            self._vet(text)
        return self._executemany(text, parameters)

    def executescript(self, _script: str) -> NoReturn:
        """Refused: a script commits whatever is under way."""
        raise OperationRefused("executescript commits the transaction that operations share")

    def _execute(self, sql: str, parameters: Sequence[Any]) -> Cursor:
        raise NotImplementedError

    def _executemany(self, sql: str, parameters: Iterable[Sequence[Any]]) -> Cursor:
        raise NotImplementedError

    def _active(self) -> bool:
        raise NotImplementedError

    def forget_reserved(self) -> None:
        """What was taken from the store may be undone, and is not given to anybody."""
        self.reserved = range(0)

    def _vet(self, sql: str) -> None:
        if not self._active():
            raise StoreFailed("the transaction has ended under this operation; nothing of it was kept")
        if sql in self._vetted:
            return
        bare = _COMMENTS.sub(" ", sql)
        word = _FIRST_WORD.match(bare)
        if word is None or word.group(1).upper() in _REFUSED or _OR_ROLLBACK.search(bare):
            raise OperationRefused(f"operations share one transaction and may not run: {sql[:60]}")
        self._vetted.add(sql)
