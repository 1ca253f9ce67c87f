"""What there is one of: the store's incarnation and its lease counter."""

from __future__ import annotations

import secrets

from .database import Database
from .guard import Connection


class Meta:
    """The store's identity. A lease means something only together with the incarnation it came from."""

    def __init__(self, incarnation: str) -> None:
        self._incarnation = incarnation

    @classmethod
    async def load(cls, database: Database) -> Meta:
        """Read the identity, giving a new store one."""
        return cls(await database.write(_ensure))

    def incarnation(self) -> str:
        """The id of this store; a restored one gets another."""
        return self._incarnation


def _ensure(connection: Connection) -> str:
    connection.execute(
        "INSERT INTO meta (id, incarnation, lease) VALUES (1, ?, 0) ON CONFLICT (id) DO NOTHING",
        (secrets.token_hex(8),),
    )
    return str(connection.execute("SELECT incarnation FROM meta WHERE id = 1").fetchone()[0])
