"""Workers: machines as they were when last heard of."""

from __future__ import annotations

from ..model import Worker
from .database import Database
from .guard import Connection
from .rows import WORKERS


class Workers:
    """Stores and reads workers by name."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def attach(self, worker: Worker) -> None:
        """Store a worker as it has just said hello."""
        columns = WORKERS.columns.split(", ")[1:]
        upsert = f"{WORKERS.insert} ON CONFLICT (name) DO UPDATE SET " + ", ".join(
            f"{name} = excluded.{name}" for name in columns
        )

        def write(connection: Connection) -> None:
            connection.execute(upsert, WORKERS.dump(worker))

        await self._database.write(write)

    async def set_state(self, name: str, state: str, now: float) -> bool:
        """Note a worker's state; false when it was that already (or there is no such worker)."""

        def write(connection: Connection) -> bool:
            changed = connection.execute(
                "UPDATE workers SET state = ?, last_seen_at = ? WHERE name = ? AND state <> ?",
                (state, now, name, state),
            )
            return changed.rowcount == 1

        return await self._database.write(write)

    async def get(self, name: str) -> Worker | None:
        """The worker, or None."""
        sql = f"SELECT {WORKERS.columns} FROM workers WHERE name = ?"

        def read(connection: Connection) -> Worker | None:
            row = connection.execute(sql, (name,)).fetchone()
            return None if row is None else WORKERS.load(row)

        return await self._database.read(read)

    async def list(self) -> list[Worker]:
        """Every worker by name."""
        sql = f"SELECT {WORKERS.columns} FROM workers ORDER BY name"
        return await self._database.read(
            lambda connection: [WORKERS.load(row) for row in connection.execute(sql).fetchall()]
        )
