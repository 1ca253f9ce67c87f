"""Flows by their names: one that is not known is looked for in the directory that is served, as it is now.

Who has just written a file asks for its flow before the next look at the directory is due.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from difflib import get_close_matches
from typing import Protocol

from ..errors import NotFound
from ..model import Flow
from ..store import Store

_NAMED_MAX = 20
_TROUBLES_MAX = 3


class Directory(Protocol):
    """What is served, as its `Watcher` has it."""

    @property
    def reading(self) -> bool:
        """Whether files that have changed are being read."""
        ...

    def news(self) -> AsyncIterator[None]:
        """Look now, and say each time that more may be known, for a while at most."""
        ...


class Lookout:
    """Finds flows, or says why there is none of that name."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.directory: Directory | None = None
        """The directory that is served, where there is one."""

    async def find(self, name: str, gone: bool = False) -> Flow:
        """The flow of that name; with ``gone`` even one whose code is not there now. Raises `NotFound`."""
        flow = await self._known(name, gone)
        if flow is None and self.directory is not None:
            async for _ in self.directory.news():
                flow = await self._known(name, gone)
                if flow is not None:
                    break
        if flow is None:
            raise await self._missing(name)
        return flow

    async def _known(self, name: str, gone: bool) -> Flow | None:
        flow = await self._store.flows.get(name)
        return flow if flow is not None and (gone or flow.present) else None

    async def _missing(self, name: str) -> NotFound:
        """Which one may be meant, what could not be read, and whether something is being read yet."""
        known = [flow.name for flow in await self._store.flows.list() if flow.present]
        near = get_close_matches(name, known, 1, 0.7)
        if near:
            hint = f"did you mean {near[0]!r}?"
        else:
            rest = len(known) - _NAMED_MAX
            others = f" and {rest} more" if rest > 0 else ""
            hint = f"this server has: {', '.join(known[:_NAMED_MAX]) or 'none'}{others}"
        broken = [trouble for project in await self._store.projects.list() for trouble in project.errors]
        told = [f"{trouble.file} ({trouble.error[:200]})" for trouble in broken[:_TROUBLES_MAX]]
        more = f", and {len(broken) - len(told)} more" if len(broken) > len(told) else ""
        unread = f"; what could not be read: {', '.join(told)}{more}" if told else ""
        late = self.directory is not None and self.directory.reading
        yet = "; files that have changed are still being read, ask again" if late else ""
        return NotFound(f"there is no flow {name!r}; {hint}{unread}{yet}")
