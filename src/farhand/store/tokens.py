"""Tokens as they are listed and revoked; the secrets themselves are not kept."""

from __future__ import annotations

from ..model import Token
from .database import Database
from .guard import Connection
from .rows import TOKENS


class Tokens:
    """Stores and reads tokens by id."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, token: Token) -> None:
        """Store a new token; raises `Conflict` when its id is taken."""

        def write(connection: Connection) -> None:
            connection.execute(TOKENS.insert, TOKENS.dump(token))

        await self._database.write(write)

    async def get(self, jti: str) -> Token | None:
        """The token, or None."""
        sql = f"SELECT {TOKENS.columns} FROM tokens WHERE jti = ?"

        def read(connection: Connection) -> Token | None:
            row = connection.execute(sql, (jti,)).fetchone()
            return None if row is None else TOKENS.load(row)

        return await self._database.read(read)

    async def list(self) -> list[Token]:
        """Every token, oldest first."""
        sql = f"SELECT {TOKENS.columns} FROM tokens ORDER BY issued_at, jti"
        return await self._database.read(
            lambda connection: [TOKENS.load(row) for row in connection.execute(sql).fetchall()]
        )

    async def revoke(self, jti: str, now: float) -> bool:
        """Revoke a token; false when it was revoked before or does not exist."""

        def write(connection: Connection) -> bool:
            revoked = connection.execute(
                "UPDATE tokens SET revoked_at = ? WHERE jti = ? AND revoked_at IS NULL", (now, jti)
            )
            return revoked.rowcount == 1

        return await self._database.write(write)

    async def revoke_all(self, now: float, but: str) -> set[str]:
        """Revoke every token that is not of the name ``but``; the ids of those that were not revoked yet."""

        def write(connection: Connection) -> set[str]:
            standing = connection.execute(
                "SELECT jti FROM tokens WHERE revoked_at IS NULL AND name <> ?", (but,)
            ).fetchall()
            connection.execute(
                "UPDATE tokens SET revoked_at = ? WHERE revoked_at IS NULL AND name <> ?", (now, but)
            )
            return {row[0] for row in standing}

        return await self._database.write(write)

    async def used(self, jti: str, now: float, address: str = "") -> None:
        """Note that a token has just been used, and from where."""

        def write(connection: Connection) -> None:
            connection.execute(
                "UPDATE tokens SET last_used_at = ?, address = ? WHERE jti = ?", (now, address, jti)
            )

        await self._database.write(write)
