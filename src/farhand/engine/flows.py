"""Flows as people handle them."""

from __future__ import annotations

from ..model import Flow
from ..store import Store
from .lookout import Lookout


class Flows:
    """The flows this server has."""

    def __init__(self, store: Store, lookout: Lookout | None = None) -> None:
        self._store = store
        self._lookout = lookout or Lookout(store)

    async def list(self) -> list[Flow]:
        """Every flow, by name; those whose code is gone too, marked so."""
        return await self._store.flows.list()

    async def get(self, name: str) -> Flow:
        """The flow of that name. Raises `NotFound`."""
        return await self._lookout.find(name, gone=True)
