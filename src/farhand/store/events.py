"""The event log: what happened, in order."""

from __future__ import annotations

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

    async def page(self, after: int = 0, limit: int = 200, run: str | None = None) -> Page[Event]:
        """Entries with ids above ``after``, in order; of one run where it is named."""
        where, keys = ("", ()) if run is None else ("run = ? AND ", (run,))
        sql = f"SELECT {EVENTS.columns} FROM events WHERE {where}id > ? ORDER BY id LIMIT ?"

        def read(connection: Connection) -> Page[Event]:
            rows = connection.execute(sql, (*keys, after, limit + 1)).fetchall()
            items = [EVENTS.load(row) for row in rows[:limit]]
            return Page(items, str(items[-1].id) if len(rows) > limit else None)

        return await self._database.read(read)
