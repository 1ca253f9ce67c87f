"""Workers: machines as they were when last heard of."""

from __future__ import annotations

from collections.abc import Sequence

from ..model import Attempt, Worker
from .attempts import attempt_of, unheard_of
from .database import Database
from .guard import Connection
from .moves import add_event
from .rows import ATTEMPTS, WORKERS

_DAY_S = 24 * 3600.0


class Workers:
    """Stores and reads workers by name."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def attach(self, worker: Worker) -> tuple[Worker, bool]:
        """Store a worker as it has just said hello; as it is now, and whether it was away until then.

        Who ordered it to drain stays, and what its engines said of its environment; the slots that somebody
        set stay with the instance they were set for.
        """
        kept = {"drained_by", "slots", "environment", "environment_at"}
        columns = [name for name in WORKERS.columns.split(", ")[1:] if name not in kept]
        upsert = (
            f"{WORKERS.insert} ON CONFLICT (name) DO UPDATE SET "
            "slots = CASE WHEN workers.instance = excluded.instance THEN workers.slots END, "
        ) + ", ".join(f"{name} = excluded.{name}" for name in columns)
        sql = f"SELECT {WORKERS.columns} FROM workers WHERE name = ?"

        def write(connection: Connection) -> tuple[Worker, bool]:
            row = connection.execute(sql, (worker.name,)).fetchone()
            before = None if row is None else WORKERS.load(row)
            connection.execute(upsert, WORKERS.dump(worker))
            after = WORKERS.load(connection.execute(sql, (worker.name,)).fetchone())
            known = before is not None and before.state == after.state == "online"
            return after, not (known and before is not None and before.instance == after.instance)

        return await self._database.write(write)

    async def order_drain(self, name: str, by: str) -> bool:
        """Note who has a worker take nothing new, empty for nobody; false when that changes nothing."""

        def write(connection: Connection) -> bool:
            changed = connection.execute(
                "UPDATE workers SET drained_by = ? WHERE name = ? AND (drained_by = '') <> (? = '')",
                (by, name, by),
            )
            return changed.rowcount == 1

        return await self._database.write(write)

    async def set_slots(self, name: str, slots: int) -> None:
        """Note how many slots somebody gave a worker."""

        def write(connection: Connection) -> None:
            connection.execute(
                "UPDATE workers SET slots = ?, parallel = ? WHERE name = ?", (slots, slots, name)
            )

        await self._database.write(write)

    async def forget(self, name: str) -> bool:
        """Forget a worker; false, and nothing happens, while a job is leased to it."""

        def write(connection: Connection) -> bool:
            gone = connection.execute(
                "DELETE FROM workers WHERE name = ? AND NOT EXISTS"
                " (SELECT 1 FROM jobs WHERE worker = ? AND state IN ('leased', 'running'))",
                (name, name),
            )
            return gone.rowcount == 1

        return await self._database.write(write)

    async def set_environment(self, name: str, digest: str, now: float, changes: Sequence[str] = ()) -> bool:
        """Note what is installed on a worker; false when it was that already.

        A change is an event that names the ``changes``, where they are known.
        """

        def write(connection: Connection) -> bool:
            row = connection.execute("SELECT environment FROM workers WHERE name = ?", (name,)).fetchone()
            if row is None or row[0] == digest:
                return False
            connection.execute(
                "UPDATE workers SET environment = ?, environment_at = ? WHERE name = ?", (digest, now, name)
            )
            if row[0]:
                named = f": {', '.join(changes)}" if changes else ""
                message = f"what is installed on {name} has changed{named}"
                details = {"before": row[0], "after": digest, "changes": list(changes)}
                add_event(connection, now, "worker.environment", message, None, name, details)
            return True

        return await self._database.write(write)

    async def set_git(self, name: str, git: str) -> None:
        """Note which commit a worker's checkout is at."""
        await self._database.write(
            lambda connection: connection.execute("UPDATE workers SET git = ? WHERE name = ?", (git, name))
        )

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

    async def attempts(self, name: str, since: float, limit: int) -> list[tuple[Attempt, str]]:
        """The attempts a worker had since a moment, the newest first, each with the name of its flow or task.

        One that was handed over more than a day before that moment is left out.
        """
        columns = ", ".join(f"a.{column}" for column in ATTEMPTS.columns.split(", "))
        sql = (
            f"SELECT CASE WHEN j.name = '' THEN j.flow ELSE j.name END, {columns}"
            " FROM attempts a JOIN jobs j ON j.id = a.job"
            " WHERE a.worker = ? AND a.leased_at > ? AND (a.ended_at IS NULL OR a.ended_at > ?)"
            " ORDER BY a.leased_at DESC LIMIT ?"
        )
        keys = (name, since - _DAY_S, since, limit)

        def read(connection: Connection) -> list[tuple[Attempt, str]]:
            rows = connection.execute(sql, keys).fetchall()
            held = unheard_of(connection, "worker = ? AND leased_at > ?", keys[:2])
            found = [(ATTEMPTS.load(row[1:]), str(row[0])) for row in rows]
            found += [(attempt_of(job), job.name or job.flow) for job in held]
            return sorted(found, key=lambda pair: pair[0].leased_at, reverse=True)[:limit]

        return await self._database.read(read)

    async def list(self) -> list[Worker]:
        """Every worker by name."""
        sql = f"SELECT {WORKERS.columns} FROM workers ORDER BY name"
        return await self._database.read(
            lambda connection: [WORKERS.load(row) for row in connection.execute(sql).fetchall()]
        )
