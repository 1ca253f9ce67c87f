"""Machines that provisioners were asked for: recorded first, so that none is lost sight of."""

from __future__ import annotations

from ..lifecycle import MACHINE, advance
from ..model import Job, Machine, Token
from .database import Database
from .guard import Connection
from .rows import MACHINES, TOKENS

_KEPT_S = 30 * 24 * 3600.0


class Machines:
    """Stores and reads machines by name."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, machine: Machine, token: Token) -> None:
        """Record one that is to be asked for, with the token of its worker.

        Those that ended a month ago go, with their tokens.
        """

        def write(connection: Connection) -> None:
            long_ago = (machine.asked_at - _KEPT_S,)
            connection.execute(
                "DELETE FROM tokens WHERE jti IN (SELECT jti FROM machines WHERE ended_at < ?)", long_ago
            )
            connection.execute("DELETE FROM machines WHERE ended_at < ?", long_ago)
            connection.execute(TOKENS.insert, TOKENS.dump(token))
            connection.execute(MACHINES.insert, MACHINES.dump(machine))

        await self._database.write(write)

    async def open(self) -> list[Machine]:
        """Those that have not ended, in the order in which they were asked for."""
        sql = f"SELECT {MACHINES.columns} FROM machines WHERE ended_at IS NULL ORDER BY asked_at, name"
        return await self._database.read(
            lambda connection: [MACHINES.load(row) for row in connection.execute(sql).fetchall()]
        )

    async def ended(self, limit: int) -> list[Machine]:
        """Those that ended last, the latest first."""
        sql = (
            f"SELECT {MACHINES.columns} FROM machines WHERE ended_at IS NOT NULL"
            " ORDER BY ended_at DESC, name LIMIT ?"
        )
        return await self._database.read(
            lambda connection: [MACHINES.load(row) for row in connection.execute(sql, (limit,)).fetchall()]
        )

    async def change(self, before: Machine, after: Machine) -> bool:
        """Write ``after`` in the place of ``before``; false when that is in another state by now.

        Raises `IllegalTransition`.
        """
        if after.state != before.state:
            advance(MACHINE, before.state, after.state)
        names = [name for name in MACHINES.columns.split(", ") if name != "name"]
        row = dict(zip(MACHINES.columns.split(", "), MACHINES.dump(after), strict=True))
        sql = f"UPDATE machines SET {', '.join(f'{n} = ?' for n in names)} WHERE name = ? AND state = ?"

        def write(connection: Connection) -> bool:
            keys = (*(row[name] for name in names), before.name, before.state)
            return connection.execute(sql, keys).rowcount == 1

        return await self._database.write(write)


def machines_lost(connection: Connection, job: Job) -> int | None:
    """How many machines a job has lost; None where its worker is no machine that was asked for."""
    lost, of_machine = connection.execute(
        "SELECT COUNT(a.lease), (SELECT COUNT(*) FROM machines WHERE name = ?)"
        " FROM attempts a JOIN machines m ON m.name = a.worker WHERE a.job = ? AND a.outcome = 'lost'",
        (job.worker, job.id),
    ).fetchone()
    return int(lost) if of_machine else None
