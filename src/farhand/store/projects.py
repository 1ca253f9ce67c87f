"""Projects: a directory's flows and schedules, replaced together in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..errors import Conflict
from ..model import Flow, Project, Schedule, Service, Version
from .answers import Answer
from .changes import Changes, Effects
from .database import Database
from .flows import Flows, replace_flows
from .guard import Connection
from .rows import PROJECTS
from .services import replace_services
from .timetables import replace_schedules
from .versions import note_version


class Projects:
    """Stores and reads projects by name."""

    def __init__(self, database: Database, flows: Flows) -> None:
        self._database = database
        self._flows = flows

    def replace(
        self,
        project: Project,
        flows: list[Flow],
        schedules: list[Schedule],
        now: float,
        versions: Sequence[Version] = (),
        services: Sequence[Service] = (),
    ) -> Answer[Changes]:
        """Store what a project has now, with the ``versions`` of its declared flows and their ``services``.

        What it had before and lacks now is no longer present.

        Raises `Conflict` when another project has a flow of the same name, or when a project that is
        served from a directory would be overwritten by one that is deployed, or the other way round.
        """

        def write(connection: Connection) -> Changes:
            effects = Effects()
            _replace(connection, effects, project, flows, schedules, now, versions)
            replace_services(connection, effects, project.name, list(services), now)
            return effects.freeze()

        replaced = self._database.submit(write)
        replaced.follow(lambda _: self._flows.forget())
        return replaced

    async def note(self, project: Project) -> None:
        """Store what is wrong with a project; its flows and schedules stay as they are."""

        def write(connection: Connection) -> None:
            connection.execute(
                "UPDATE projects SET errors = ? WHERE name = ?",
                (PROJECTS.value("errors", project.errors), project.name),
            )

        await self._database.write(write)

    async def get(self, name: str) -> Project | None:
        """The project, or None."""

        def read(connection: Connection) -> Project | None:
            return _get(connection, name)

        return await self._database.read(read)

    async def list(self) -> list[Project]:
        """Every project by name."""
        sql = f"SELECT {PROJECTS.columns} FROM projects ORDER BY name"
        return await self._database.read(
            lambda connection: [PROJECTS.load(row) for row in connection.execute(sql).fetchall()]
        )


def _get(connection: Connection, name: str) -> Project | None:
    row = connection.execute(f"SELECT {PROJECTS.columns} FROM projects WHERE name = ?", (name,)).fetchone()
    return None if row is None else PROJECTS.load(row)


def _replace(
    connection: Connection,
    effects: Effects,
    project: Project,
    flows: list[Flow],
    schedules: list[Schedule],
    now: float,
    versions: Sequence[Version],
) -> None:
    before = _get(connection, project.name)
    if before is not None and project.origin == "deployed" and before.origin == "served":
        raise Conflict(
            f"project {project.name!r} is served from {before.place}; "
            "deploy under another name, set in farhand.toml as [project] name"
        )
    columns = PROJECTS.columns.split(", ")[1:]
    connection.execute(
        f"{PROJECTS.insert} ON CONFLICT (name) DO UPDATE SET "
        + ", ".join(f"{name} = excluded.{name}" for name in columns),
        PROJECTS.dump(replace(project, updated_at=now)),
    )
    if project.origin == "served":
        _retire_served(connection, effects, project.name, now)
    replace_flows(connection, project.name, flows, now)
    replace_schedules(connection, project.name, schedules, now)
    for version in versions:
        note_version(connection, version)


def _retire_served(connection: Connection, effects: Effects, name: str, now: float) -> None:
    """A server serves one directory: what it served before under other names is gone, but for its history."""
    others = "SELECT name FROM projects WHERE origin = 'served' AND name <> ?"
    for row in connection.execute(others, (name,)).fetchall():
        replace_services(connection, effects, row[0], [], now)
    for table in ("flows", "schedules"):
        connection.execute(f"UPDATE {table} SET present = 0 WHERE project IN ({others})", (name,))
    connection.execute("DELETE FROM projects WHERE origin = 'served' AND name <> ?", (name,))
