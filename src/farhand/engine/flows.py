"""Flows as people handle them."""

from __future__ import annotations

from ..errors import NotFound
from ..model import Flow
from ..store import Store


class Flows:
    """The flows this server has."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list(self) -> list[Flow]:
        """Every flow, by name; those whose code is gone too, marked so."""
        return await self._store.flows.list()

    async def get(self, name: str) -> Flow:
        """The flow of that name. Raises `NotFound`."""
        flow = await self._store.flows.get(name)
        if flow is None:
            raise NotFound(f"there is no flow {name!r}; `farhand flows list` shows them")
        return flow
