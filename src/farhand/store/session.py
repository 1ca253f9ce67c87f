"""What the writer and the readers ask of a dialect: one connection and the transactions on it."""

from __future__ import annotations

from typing import Protocol

from .guard import Connection


class Fenced(Exception):
    """Another process has taken the store over; nothing may be written from here any more."""


class Session(Protocol):
    """One connection of a dialect, used by one thread at a time."""

    errors: tuple[type[Exception], ...]
    """What the driver raises."""

    cursor: type
    """What the driver's statements return."""

    marks_first: bool
    """Whether the first operation of a transaction needs a savepoint too."""

    @property
    def guarded(self) -> Connection:
        """The connection as operations see it."""
        ...

    @property
    def active(self) -> bool:
        """Whether a transaction is open."""
        ...

    def begin(self) -> None:
        """Open a transaction."""
        ...

    def commit(self) -> None:
        """Make what was written durable."""
        ...

    def rollback(self) -> None:
        """Forget what was written; harmless when nothing is open."""
        ...

    def mark(self) -> None:
        """Remember this point of the transaction."""
        ...

    def undo(self) -> None:
        """Forget what was written since `mark`."""
        ...

    def keep(self) -> None:
        """Let what was written since `mark` be a part of the transaction."""
        ...

    def again_s(self, error: Exception, attempt: int) -> float | None:
        """Seconds after which the whole transaction may be run again, or None: it failed for good."""
        ...

    def translated(self, error: Exception) -> Exception:
        """An operation's error as callers know it: no exception of the driver passes for one of ours."""
        ...

    def close(self) -> None:
        """Give the connection up."""
        ...
