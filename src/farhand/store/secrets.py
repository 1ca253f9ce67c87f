"""Secrets: their names, and their values as sealed text that only the engine's key opens."""

from __future__ import annotations

from ..model import Secret
from .database import Database
from .guard import Connection
from .rows import SECRETS


class Secrets:
    """Stores and reads sealed values by name."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def set(self, name: str, sealed: str, key: str, now: float, by: str) -> bool:
        """Keep a sealed value under a name; true when there was none before. ``key`` names what sealed it."""

        def write(connection: Connection) -> bool:
            known = connection.execute("SELECT 1 FROM secrets WHERE name = ?", (name,)).fetchone()
            connection.execute(
                "INSERT INTO secrets (name, sealed, sealed_with, created_at, updated_at, updated_by) "
                "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET sealed = excluded.sealed, "
                "sealed_with = excluded.sealed_with, updated_at = excluded.updated_at, "
                "updated_by = excluded.updated_by",
                (name, sealed, key, now, now, by),
            )
            return known is None

        return await self._database.write(write)

    async def sealed(self) -> dict[str, tuple[str, str]]:
        """Every sealed value with the name of its key."""
        sql = "SELECT name, sealed, sealed_with FROM secrets"
        return await self._database.read(
            lambda connection: {row[0]: (row[1], row[2]) for row in connection.execute(sql).fetchall()}
        )

    async def list(self) -> list[Secret]:
        """Every secret by name, without its value."""
        sql = f"SELECT {SECRETS.columns} FROM secrets ORDER BY name"
        return await self._database.read(
            lambda connection: [SECRETS.load(row) for row in connection.execute(sql).fetchall()]
        )

    async def note_read(self, name: str, now: float) -> None:
        """Note that a job has just been given the value."""

        def write(connection: Connection) -> None:
            connection.execute("UPDATE secrets SET last_read_at = ? WHERE name = ?", (now, name))

        await self._database.write(write)

    async def delete(self, name: str) -> bool:
        """Forget a secret; false when there is none of that name."""

        def write(connection: Connection) -> bool:
            return connection.execute("DELETE FROM secrets WHERE name = ?", (name,)).rowcount == 1

        return await self._database.write(write)
