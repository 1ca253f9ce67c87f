"""Variables: plain values by name."""

from __future__ import annotations

from ..model import Variable
from .database import Database
from .guard import Connection
from .rows import VARIABLES


class Variables:
    """Stores and reads variables by name."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def set(self, variable: Variable) -> bool:
        """Keep a value under its name; true when there was none before."""
        upsert = (
            f"{VARIABLES.insert} ON CONFLICT (name) DO UPDATE SET value = excluded.value, "
            "updated_at = excluded.updated_at, updated_by = excluded.updated_by"
        )

        def write(connection: Connection) -> bool:
            known = connection.execute("SELECT 1 FROM variables WHERE name = ?", (variable.name,)).fetchone()
            connection.execute(upsert, VARIABLES.dump(variable))
            return known is None

        return await self._database.write(write)

    async def get(self, name: str) -> Variable | None:
        """The variable, or None."""
        sql = f"SELECT {VARIABLES.columns} FROM variables WHERE name = ?"

        def read(connection: Connection) -> Variable | None:
            row = connection.execute(sql, (name,)).fetchone()
            return None if row is None else VARIABLES.load(row)

        return await self._database.read(read)

    async def list(self) -> list[Variable]:
        """Every variable by name."""
        sql = f"SELECT {VARIABLES.columns} FROM variables ORDER BY name"
        return await self._database.read(
            lambda connection: [VARIABLES.load(row) for row in connection.execute(sql).fetchall()]
        )

    async def delete(self, name: str) -> bool:
        """Forget a variable; false when there is none of that name."""

        def write(connection: Connection) -> bool:
            return connection.execute("DELETE FROM variables WHERE name = ?", (name,)).rowcount == 1

        return await self._database.write(write)
