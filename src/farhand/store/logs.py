"""Log lines: one row a batch, the lines as JSON text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..model import LogLine, Page
from .database import Database
from .guard import Connection
from .parts import among
from .rows import from_json, to_json


class Logs:
    """Reads the lines of a run."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(
        self, run_id: str, after: int = 0, limit: int = 1000, keys: Sequence[str] | None = None
    ) -> Page[LogLine]:
        """Lines with numbers above ``after``, in order; by ``keys``, only of those flows in it."""
        sql, values = among(keys, "SELECT first_number, attempt, lines FROM logs", "last_number")

        def read(connection: Connection) -> Page[LogLine]:
            lines: list[LogLine] = []
            cursor = connection.execute(sql, (run_id, after, *values, limit + 1))  # a row has a line at least
            for first, attempt, text in cursor:
                for number, (at, line, stream, level, task) in enumerate(from_json(text), first):
                    if number > after:
                        lines.append(LogLine(number, at, line, stream, level, task, attempt))
                if len(lines) > limit:
                    return Page(lines[:limit], str(lines[limit - 1].number))
            return Page(lines)

        return await self._database.read(read)

    async def last_number(self, run_id: str) -> int:
        """The number of the latest line, 0 for none."""
        return await self._database.read(lambda connection: last_number(connection, run_id))


def last_number(connection: Connection, run: str) -> int:
    """The number of the latest line, 0 for none."""
    row = connection.execute(
        "SELECT last_number FROM logs WHERE run = ? ORDER BY last_number DESC LIMIT 1", (run,)
    ).fetchone()
    return 0 if row is None else int(row[0])


def append_lines(
    connection: Connection,
    run: str,
    attempt: int,
    lines: list[tuple[Any, ...]],
    nested: str | None = None,
) -> None:
    """Add a batch of lines, each (at, text, stream, level, task), after those the run has."""
    last = last_number(connection, run)
    connection.execute(
        "INSERT INTO logs (run, last_number, first_number, attempt, lines, nested) VALUES (?, ?, ?, ?, ?, ?)",
        (run, last + len(lines), last + 1, attempt, to_json(lines), nested),
    )
