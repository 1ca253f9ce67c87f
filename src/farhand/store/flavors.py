"""Flavors: sizes by name."""

from __future__ import annotations

from dataclasses import replace

from ..errors import UnknownFlavor
from ..model import Ask, Flavor
from .database import Database
from .guard import Connection
from .rows import FLAVORS


class Flavors:
    """Stores and reads flavors by name."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def set(self, flavor: Flavor) -> bool:
        """Keep a size under its name; true when there was none before."""
        upsert = (
            f"{FLAVORS.insert} ON CONFLICT (name) DO UPDATE SET cpus = excluded.cpus, gpus = excluded.gpus,"
            " ram_mb = excluded.ram_mb, updated_at = excluded.updated_at, updated_by = excluded.updated_by"
        )

        def write(connection: Connection) -> bool:
            known = connection.execute("SELECT 1 FROM flavors WHERE name = ?", (flavor.name,)).fetchone()
            connection.execute(upsert, FLAVORS.dump(flavor))
            return known is None

        return await self._database.write(write)

    async def list(self) -> list[Flavor]:
        """Every flavor by name."""
        sql = f"SELECT {FLAVORS.columns} FROM flavors ORDER BY name"
        return await self._database.read(
            lambda connection: [FLAVORS.load(row) for row in connection.execute(sql).fetchall()]
        )

    async def delete(self, name: str) -> bool:
        """Forget a flavor; false when there is none of that name."""

        def write(connection: Connection) -> bool:
            return connection.execute("DELETE FROM flavors WHERE name = ?", (name,)).rowcount == 1

        return await self._database.write(write)

    async def resolve(self, ask: Ask) -> Ask:
        """The ask with the amounts of its flavor. Raises `UnknownFlavor`."""
        if not ask.flavor:
            return ask
        return await self._database.read(lambda connection: with_flavor(connection, ask))


def with_flavor(connection: Connection, ask: Ask) -> Ask:
    """As `Flavors.resolve`, inside a transaction."""
    if not ask.flavor:
        return ask
    row = connection.execute(
        f"SELECT {FLAVORS.columns} FROM flavors WHERE name = ?", (ask.flavor,)
    ).fetchone()
    if row is None:
        raise UnknownFlavor(
            f"there is no flavor {ask.flavor!r} on this server; an operator defines it with "
            f"`farhand flavors set {ask.flavor} --cpus … --gpus … --ram …`"
        )
    flavor = FLAVORS.load(row)
    return replace(
        ask,
        cpus=flavor.cpus if ask.cpus is None else ask.cpus,
        gpus=flavor.gpus if ask.gpus is None else ask.gpus,
        ram_mb=flavor.ram_mb if ask.ram_mb is None else ask.ram_mb,
    )
