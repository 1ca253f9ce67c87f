"""Flows: what the last inspection of each project found."""

from __future__ import annotations

from dataclasses import replace

from ..errors import Conflict
from ..model import Flow
from .database import Database
from .guard import Connection
from .rows import FLOWS


class Flows:
    """Stores and reads flows by name. What was read is kept until a project changes: every run asks."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[str, Flow] = {}
        self._changes = 0

    async def replace(self, project: str, flows: list[Flow], now: float) -> None:
        """Store the flows a project has now; as `replace_flows`."""
        try:
            await self._database.write(lambda connection: replace_flows(connection, project, flows, now))
        finally:
            self.forget()

    def forget(self) -> None:
        """Flows were changed in the store: read them again."""
        self._known.clear()
        self._changes += 1

    async def get(self, name: str) -> Flow | None:
        """The flow, or None; one that is no longer present is still known."""
        if name in self._known:
            return self._known[name]
        changes = self._changes

        def read(connection: Connection) -> Flow | None:
            sql = f"SELECT {FLOWS.columns} FROM flows WHERE name = ?"
            row = connection.execute(sql, (name,)).fetchone()
            return None if row is None else FLOWS.load(row)

        flow = await self._database.read(read)
        if flow is not None and changes == self._changes:
            self._known[name] = flow
        return flow

    async def list(self) -> list[Flow]:
        """Every flow by name."""
        sql = f"SELECT {FLOWS.columns} FROM flows ORDER BY name"
        return await self._database.read(
            lambda connection: [FLOWS.load(row) for row in connection.execute(sql).fetchall()]
        )


def replace_flows(connection: Connection, project: str, flows: list[Flow], now: float) -> None:
    """Store what a project has now; flows it had before and lacks now are no longer present.

    Raises `Conflict` when another project has a flow of the same name.
    """
    connection.execute("UPDATE flows SET present = 0 WHERE project = ?", (project,))
    for flow in flows:
        store_flow(connection, replace(flow, project=project), now)


_UPSERT = (
    f"{FLOWS.insert} ON CONFLICT (name) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in FLOWS.columns.split(", ")[1:])
    + " WHERE flows.project = excluded.project OR flows.present = 0"
)


def store_flow(connection: Connection, flow: Flow, now: float) -> None:
    """Store one flow of a project. Raises `Conflict` when another project has one of its name."""
    row = FLOWS.dump(replace(flow, present=True, updated_at=now))
    if connection.execute(_UPSERT, row).rowcount != 1:
        holder = connection.execute("SELECT project FROM flows WHERE name = ?", (flow.name,)).fetchone()
        raise Conflict(
            f"projects {holder[0]!r} and {flow.project!r} both have a flow named {flow.name!r}; "
            "rename one of them"
        )
