"""The audit log: who changed what, from where, when, and what came of it."""

from __future__ import annotations

from ..model import AuditEntry, Page
from .database import Database
from .guard import Connection
from .rows import AUDIT

_NAMES = AUDIT.columns.split(", ")[1:]
_INSERT = f"INSERT INTO audit ({', '.join(_NAMES)}) VALUES ({', '.join('?' * len(_NAMES))})"


class Audit:
    """Adds to the audit log and reads it; entries are never changed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, entry: AuditEntry) -> None:
        """Store an entry; the id it gets is the store's."""
        await self._database.write(lambda connection: add_entry(connection, entry))

    async def page(
        self, limit: int, before: int | None = None, actor: str | None = None, action: str | None = None
    ) -> Page[AuditEntry]:
        """Entries, the newest first, with ids below ``before``; of one actor or action where it is named."""
        asked = {"id < ?": before, "actor = ?": actor, "action = ?": action}
        terms = {term: value for term, value in asked.items() if value is not None}
        where = f"WHERE {' AND '.join(terms)}" if terms else ""
        sql = f"SELECT {AUDIT.columns} FROM audit {where} ORDER BY id DESC LIMIT ?"

        def read(connection: Connection) -> Page[AuditEntry]:
            rows = connection.execute(sql, (*terms.values(), limit + 1)).fetchall()
            items = [AUDIT.load(row) for row in rows[:limit]]
            return Page(items, str(items[-1].id) if len(rows) > limit else None)

        return await self._database.read(read)


def add_entry(connection: Connection, entry: AuditEntry) -> None:
    """As `Audit.add`, inside the transaction of what the entry tells of."""
    connection.execute(_INSERT, AUDIT.dump(entry)[1:])
