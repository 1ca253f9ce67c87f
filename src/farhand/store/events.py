"""The event log: what happened, in order."""

from __future__ import annotations

from typing import Any

from ..model import Event, Json, Page
from .database import Database
from .guard import Connection
from .moves import add_event
from .rows import EVENTS


class Events:
    """Adds to the event log and reads it. Runs write their own entries when their state changes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(
        self,
        at: float,
        kind: str,
        message: str,
        run: str | None = None,
        worker: str | None = None,
        details: Json | None = None,
    ) -> None:
        """Add an entry; ``kind`` is dotted, as in ``worker.attached``."""
        await self._database.write(
            lambda connection: add_event(connection, at, kind, message, run, worker, details)
        )

    async def latest(
        self,
        limit: int = 50,
        before: int | None = None,
        worker: str | None = None,
        run: str | None = None,
        kind: str | None = None,
    ) -> Page[Event]:
        """Entries with ids below ``before``, the newest first. A ``kind`` ending in a dot is a prefix."""
        asked: list[tuple[str, list[Any]]] = [
            ("id < ?", [] if before is None else [before]),
            ("worker = ?", [] if worker is None else [worker]),
            ("run = ?", [] if run is None else [run]),
            (
                "substr(kind, 1, ?) = ?" if kind and kind.endswith(".") else "kind = ?",
                [] if not kind else [len(kind), kind] if kind.endswith(".") else [kind],
            ),
        ]
        where = " AND ".join(sql for sql, keys in asked if keys) or "1 = 1"
        keys = [key for _, given in asked for key in given]
        sql = f"SELECT {EVENTS.columns} FROM events WHERE {where} ORDER BY id DESC LIMIT ?"

        def read(connection: Connection) -> Page[Event]:
            rows = connection.execute(sql, (*keys, limit + 1)).fetchall()
            items = [EVENTS.load(row) for row in rows[:limit]]
            return Page(items, str(items[-1].id) if len(rows) > limit else None)

        return await self._database.read(read)

    async def page(self, after: int = 0, limit: int = 200, run: str | None = None) -> Page[Event]:
        """Entries with ids above ``after``, in order; of one run where it is named."""
        where, keys = ("", ()) if run is None else ("run = ? AND ", (run,))
        sql = f"SELECT {EVENTS.columns} FROM events WHERE {where}id > ? ORDER BY id LIMIT ?"

        def read(connection: Connection) -> Page[Event]:
            rows = connection.execute(sql, (*keys, after, limit + 1)).fetchall()
            items = [EVENTS.load(row) for row in rows[:limit]]
            return Page(items, str(items[-1].id) if len(rows) > limit else None)

        return await self._database.read(read)
