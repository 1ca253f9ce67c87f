"""Declared flows: the versions of their documents. A run is of the version whose code it was created with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..errors import Changed
from ..model import Flow, Schedule, Service, Version
from .answers import Answer
from .changes import Effects
from .database import Database
from .flows import Flows, store_flow
from .guard import Connection
from .rows import VERSIONS
from .services import replace_services_of
from .timetables import replace_schedules_of


class Versions:
    """Stores and reads the versions of declared flows."""

    def __init__(self, database: Database, flows: Flows) -> None:
        self._database = database
        self._flows = flows

    def put(
        self,
        flow: Flow,
        version: Version,
        expected: str | None,
        now: float,
        services: Sequence[Service] = (),
        effects: Effects | None = None,
        schedules: Sequence[Schedule] = (),
    ) -> Answer[Version]:
        """Keep a document as the flow's newest version; the same as the last one is that version still.

        Its ``services`` are offered with it, and what follows from that is in ``effects``. Its ``schedules``
        take the place of those that it had.

        ``expected`` is the etag of what the change is based on (``*``: of whatever there is, empty: of
        nothing). Raises `Changed` when something else is there, `Conflict` when a project has a flow of
        that name, or another flow a service of one of those names.
        """

        follows = Effects() if effects is None else effects

        def write(connection: Connection) -> Version:
            latest = _latest(connection, flow.name)
            _check_expected(latest, expected)
            store_flow(connection, flow, now)
            replace_services_of(connection, follows, flow.name, flow.project, list(services), now)
            replace_schedules_of(connection, flow.name, flow.project, list(schedules), now)
            return add_version(connection, replace(version, created_at=now), latest)

        put = self._database.submit(write)
        put.follow(lambda _: self._flows.forget())
        return put

    async def latest(self, flow: str) -> Version | None:
        """The newest version of a flow; None for one that is not declared."""
        return await self._database.read(lambda connection: _latest(connection, flow))

    async def of_code(self, flow: str, fingerprint: str) -> Version | None:
        """The newest version of a flow that is this code."""
        sql = (
            f"SELECT {VERSIONS.columns} FROM versions WHERE flow = ? AND fingerprint = ?"
            " ORDER BY number DESC LIMIT 1"
        )

        def read(connection: Connection) -> Version | None:
            row = connection.execute(sql, (flow, fingerprint)).fetchone()
            return None if row is None else VERSIONS.load(row)

        return await self._database.read(read)

    async def list(self, flow: str) -> list[Version]:
        """Every version of a flow, the newest first."""
        sql = f"SELECT {VERSIONS.columns} FROM versions WHERE flow = ? ORDER BY number DESC"
        return await self._database.read(
            lambda connection: [VERSIONS.load(row) for row in connection.execute(sql, (flow,)).fetchall()]
        )


def add_version(connection: Connection, version: Version, latest: Version | None) -> Version:
    """Keep a version after the ``latest``, unless it is that one."""
    if latest is not None and (latest.etag, latest.fingerprint) == (version.etag, version.fingerprint):
        return latest
    added = replace(version, number=1 if latest is None else latest.number + 1)
    connection.execute(VERSIONS.insert, VERSIONS.dump(added))
    return added


def note_version(connection: Connection, version: Version) -> None:
    """As `add_version`, of a flow that a project has."""
    add_version(connection, version, _latest(connection, version.flow))


def forget_versions(connection: Connection, flow: str, expected: str | None = None) -> None:
    """The flow is deleted, with its runs. Raises `Changed` as `Versions.put` does."""
    if expected is not None:
        _check_expected(_latest(connection, flow), expected)
    connection.execute("DELETE FROM versions WHERE flow = ?", (flow,))


def _latest(connection: Connection, flow: str) -> Version | None:
    row = connection.execute(
        f"SELECT {VERSIONS.columns} FROM versions WHERE flow = ? ORDER BY number DESC LIMIT 1", (flow,)
    ).fetchone()
    return None if row is None else VERSIONS.load(row)


def _check_expected(latest: Version | None, expected: str | None) -> None:
    if expected is None or (expected == "*" and latest is not None):
        return
    there = "" if latest is None else latest.etag
    if expected != there:
        raise Changed(
            f"the flow is not what this change is based on: it has the etag {there!r}"
            if there
            else "there is no such flow yet, and If-Match names one"
        )
