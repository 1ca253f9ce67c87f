"""Flavors: named sizes, which flows and tasks ask for by name."""

from __future__ import annotations

import time

from ..errors import NotFound, Usage
from ..model import Flavor
from ..sdk.sizes import Size, size_mb_of
from ..store import Store
from .secrets import check_name

_LEAST = {"cpus": 1, "gpus": 0, "ram_mb": 1}


class Flavors:
    """Sets, lists and deletes. Jobs that are there already keep the amounts they were made with."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def set(self, name: str, cpus: int | None, gpus: int | None, ram: Size | None, by: str) -> bool:
        """Keep a size under a name; true when there was none before. Raises `Usage`."""
        check_name(name, "a flavor")
        flavor = Flavor(name, cpus, gpus, _megabytes(ram), time.time(), by)
        for field, least in _LEAST.items():
            amount = getattr(flavor, field)
            if amount is not None and amount < least:
                raise Usage(f"{field.removesuffix('_mb')} must be at least {least}")
        if (cpus, gpus, flavor.ram_mb) == (None, None, None):
            raise Usage("a flavor gives at least one of cpus, gpus and ram")
        return await self._store.flavors.set(flavor)

    async def list(self) -> list[Flavor]:
        """Every flavor by name."""
        return await self._store.flavors.list()

    async def delete(self, name: str) -> None:
        """Forget a flavor. Raises `NotFound`."""
        if not await self._store.flavors.delete(name):
            raise NotFound(f"there is no flavor {name!r}; `farhand flavors list` shows them")


def _megabytes(ram: Size | None) -> int | None:
    try:
        return None if ram is None else size_mb_of(ram)
    except ValueError as error:
        raise Usage(f"ram {error}") from error
