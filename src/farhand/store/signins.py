"""Sign-ins to the console that were ended before their time."""

from __future__ import annotations

from .database import Database
from .guard import Connection


class SignIns:
    """Remembers which ended, as long as a cookie of theirs could be shown."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def end(self, id: str, expires_at: float, now: float) -> None:
        """This one has ended, and would have at ``expires_at``."""

        def write(connection: Connection) -> None:
            connection.execute("DELETE FROM ended_sign_ins WHERE expires_at <= ?", (now,))
            connection.execute(
                "INSERT INTO ended_sign_ins (id, expires_at) VALUES (?, ?) ON CONFLICT (id) DO NOTHING",
                (id, expires_at),
            )

        await self._database.write(write)

    async def has_ended(self, id: str) -> bool:
        """Whether it was ended."""
        sql = "SELECT 1 FROM ended_sign_ins WHERE id = ?"
        return await self._database.read(
            lambda connection: connection.execute(sql, (id,)).fetchone() is not None
        )
