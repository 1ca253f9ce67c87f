"""Flows as people handle them."""

from __future__ import annotations

from difflib import get_close_matches

from ..errors import NotFound
from ..model import Flow
from ..store import Store

_NAMED_MAX = 20
_TROUBLES_MAX = 3


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
            raise await missing(self._store, name)
        return flow


async def missing(store: Store, name: str) -> NotFound:
    """What to say where no flow has that name: which one may be meant, and what could not be read."""
    known = [flow.name for flow in await store.flows.list() if flow.present]
    near = get_close_matches(name, known, 1, 0.7)
    if near:
        hint = f"did you mean {near[0]!r}?"
    else:
        rest = len(known) - _NAMED_MAX
        others = f" and {rest} more" if rest > 0 else ""
        hint = f"this server has: {', '.join(known[:_NAMED_MAX]) or 'none'}{others}"
    broken = [trouble for project in await store.projects.list() for trouble in project.errors]
    told = [f"{trouble.file} ({trouble.error[:200]})" for trouble in broken[:_TROUBLES_MAX]]
    more = f", and {len(broken) - len(told)} more" if len(broken) > len(told) else ""
    unread = f"; what could not be read: {', '.join(told)}{more}" if told else ""
    return NotFound(f"there is no flow {name!r}; {hint}{unread}")
