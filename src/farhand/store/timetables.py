"""Which schedules flows have: replaced with what they are part of, gone with their flow."""

from __future__ import annotations

from dataclasses import replace

from ..model import Schedule
from .guard import Connection
from .rows import SCHEDULES


def replace_schedules(connection: Connection, project: str, schedules: list[Schedule], now: float) -> None:
    """Store the schedules a project has now; those it had before and lacks now no longer fire.

    A schedule that is new, or comes back, counts from ``now``: nothing before that is made up for.
    """
    _replace(connection, "project = ?", (project,), project, schedules, now)


def replace_schedules_of(
    connection: Connection, flow: str, project: str, schedules: list[Schedule], now: float
) -> None:
    """The same of one flow of a project."""
    _replace(connection, "project = ? AND flow = ?", (project, flow), project, schedules, now)


def forget_schedules(connection: Connection, flow: str, project: str) -> None:
    """The flow is deleted: so are its schedules, and that they fired."""
    own = "SELECT id FROM schedules WHERE flow = ? AND project = ?"
    connection.execute(f"DELETE FROM fires WHERE schedule IN ({own})", (flow, project))
    connection.execute("DELETE FROM schedules WHERE flow = ? AND project = ?", (flow, project))


def _replace(
    connection: Connection,
    which: str,
    values: tuple[str, ...],
    project: str,
    schedules: list[Schedule],
    now: float,
) -> None:
    present = f"SELECT id FROM schedules WHERE {which} AND present = 1"
    before = {row[0] for row in connection.execute(present, values).fetchall()}
    connection.execute(f"UPDATE schedules SET present = 0 WHERE {which}", values)
    for schedule in schedules:
        row = replace(schedule, project=project, since=now, created_at=now, updated_at=now)
        since = "schedules.since" if schedule.id in before else "excluded.since"
        connection.execute(
            f"{SCHEDULES.insert} ON CONFLICT (id) DO UPDATE SET flow = excluded.flow,"
            " project = excluded.project, spec = excluded.spec, params = excluded.params, present = 1,"
            f" since = {since}, updated_at = excluded.updated_at",
            SCHEDULES.dump(row),
        )
