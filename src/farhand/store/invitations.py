"""Invitations: codes that buy one token each."""

from __future__ import annotations

from ..model import Invitation, Token
from .database import Database
from .guard import Connection
from .rows import INVITATIONS, TOKENS

_KEPT_S = 30 * 24 * 3600.0


class Invitations:
    """Stores invitations, and has each used once at most."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, invitation: Invitation) -> None:
        """Store a new invitation; those that nobody can use any more for a month go."""

        def write(connection: Connection) -> None:
            long_ago = invitation.issued_at - _KEPT_S
            connection.execute("DELETE FROM invitations WHERE expires_at < ?", (long_ago,))
            connection.execute(INVITATIONS.insert, INVITATIONS.dump(invitation))

        await self._database.write(write)

    async def find(self, code_hash: str) -> Invitation | None:
        """The invitation with that code, used or not."""
        sql = f"SELECT {INVITATIONS.columns} FROM invitations WHERE code_hash = ?"

        def read(connection: Connection) -> Invitation | None:
            row = connection.execute(sql, (code_hash,)).fetchone()
            return None if row is None else INVITATIONS.load(row)

        return await self._database.read(read)

    async def use(self, id: str, token: Token, now: float, address: str) -> bool:
        """Give ``token`` for the invitation; false, and nothing is given, when it is used or too old."""

        def write(connection: Connection) -> bool:
            used = connection.execute(
                "UPDATE invitations SET used_at = ?, jti = ?, address = ?"
                " WHERE id = ? AND used_at IS NULL AND expires_at > ?",
                (now, token.jti, address, id, now),
            )
            if used.rowcount == 1:
                connection.execute(TOKENS.insert, TOKENS.dump(token))
            return used.rowcount == 1

        return await self._database.write(write)
