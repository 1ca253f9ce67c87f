"""Schedules and their fires: one row a schedule and fire time, however often somebody tries."""

from __future__ import annotations

from dataclasses import replace

from ..errors import NotFound
from ..lifecycle import RUN, is_terminal
from ..model import Fire, Job, Run, Schedule
from .answers import Answer
from .database import Database
from .guard import Connection
from .moves import add_event
from .rows import FIRES, SCHEDULES
from .runs import create_run

_OPEN = tuple(sorted(state for state in RUN if not is_terminal(RUN, state)))
_GOING = (
    f"SELECT id, state FROM runs WHERE flow = ? AND state IN ({', '.join('?' * len(_OPEN))}) AND schedule = ?"
    " LIMIT 1"
)


class Schedules:
    """Stores and reads schedules by id."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self) -> list[Schedule]:
        """Every schedule by flow and id, those whose flow is gone too."""
        sql = f"SELECT {SCHEDULES.columns} FROM schedules ORDER BY flow, id"
        return await self._database.read(
            lambda connection: [SCHEDULES.load(row) for row in connection.execute(sql).fetchall()]
        )

    async def get(self, id: str) -> Schedule | None:
        """The schedule, or None."""

        def read(connection: Connection) -> Schedule | None:
            sql = f"SELECT {SCHEDULES.columns} FROM schedules WHERE id = ?"
            row = connection.execute(sql, (id,)).fetchone()
            return None if row is None else SCHEDULES.load(row)

        return await self._database.read(read)

    async def set_paused(self, id: str, paused: bool, now: float) -> bool:
        """Pause or resume; false when it is that way already. Fires of the pause are not made up for.

        Raises `NotFound`.
        """

        def write(connection: Connection) -> bool:
            row = connection.execute("SELECT flow FROM schedules WHERE id = ?", (id,)).fetchone()
            if row is None:
                raise NotFound(f"there is no schedule {id!r}")
            changed = connection.execute(
                "UPDATE schedules SET paused = ?, since = ? WHERE id = ? AND paused <> ?",
                (int(paused), now, id, int(paused)),
            )
            if changed.rowcount != 1:
                return False
            kind = "schedule.paused" if paused else "schedule.resumed"
            add_event(connection, now, kind, row[0], details={"schedule": id})
            return True

        return await self._database.write(write)

    def fire(
        self, fire: Fire, started: tuple[Run, Job] | None, skip: bool = False
    ) -> Answer[tuple[Run, Job] | None]:
        """Record a fire, and the run it starts, which is returned.

        None is returned where the fire was recorded before. With ``skip`` also where a run that the schedule
        started has not ended: what is recorded then is that, and no run.
        """

        def write(connection: Connection) -> tuple[Run, Job] | None:
            going = _going(connection, started[0]) if skip and started is not None else None
            if going is None:
                return _fire(connection, fire, started)
            message = f"{fire.message}; {going}" if fire.message else going
            return _fire(connection, replace(fire, outcome="skipped", message=message, run=None), None)

        return self._database.submit(write)

    async def fires(self, id: str, limit: int) -> list[Fire]:
        """The latest fires, newest first."""
        sql = f"SELECT {FIRES.columns} FROM fires WHERE schedule = ? ORDER BY at DESC LIMIT ?"
        return await self._database.read(
            lambda connection: [FIRES.load(row) for row in connection.execute(sql, (id, limit)).fetchall()]
        )

    async def last_fires(self) -> dict[str, Fire]:
        """The latest fire of each schedule that ever fired."""
        sql = (
            f"SELECT {FIRES.columns} FROM fires"
            " WHERE at = (SELECT max(at) FROM fires AS other WHERE other.schedule = fires.schedule)"
        )

        def read(connection: Connection) -> dict[str, Fire]:
            fires = [FIRES.load(row) for row in connection.execute(sql).fetchall()]
            return {fire.schedule: fire for fire in fires}

        return await self._database.read(read)


def _going(connection: Connection, run: Run) -> str | None:
    """What is said of a run of the same schedule that has not ended, if there is one."""
    row = connection.execute(_GOING, (run.flow, *_OPEN, run.schedule)).fetchone()
    return None if row is None else f"run {row[0]} is still {row[1]}"


def _fire(connection: Connection, fire: Fire, started: tuple[Run, Job] | None) -> tuple[Run, Job] | None:
    inserted = connection.execute(f"{FIRES.insert} ON CONFLICT (schedule, at) DO NOTHING", FIRES.dump(fire))
    if inserted.rowcount != 1:
        return None
    connection.execute("UPDATE schedules SET since = ? WHERE id = ?", (fire.at, fire.schedule))
    details = {"schedule": fire.schedule, "scheduled_for": fire.at, "late": fire.late, "missed": fire.missed}
    add_event(connection, fire.fired_at, f"schedule.{fire.outcome}", fire.message, fire.run, details=details)
    if started is None:
        return None
    run, job, created = create_run(connection, *started)
    return (run, job) if created else None
