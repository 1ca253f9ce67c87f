"""The graph of a run: that of its document where it has one, else that of its calls."""

from __future__ import annotations

from dataclasses import replace

from ..graph import Graph, of_calls, of_document
from ..lifecycle import RUN, is_terminal
from ..model import Run
from ..store import Store

CALLS_MAX = 1_000
"""So many calls of a run are looked at: its page asks again whenever something happens."""


class Graphs:
    """Reads the graphs of runs."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def of(self, run: Run) -> Graph:
        """The graph of a run as it is now."""
        nested = run.key if run.root else None
        tasks = await self._store.tasks.shapes(run.root or run.id, CALLS_MAX + 1, nested)
        version = await self._store.versions.of_code(run.flow, run.fingerprint) if run.fingerprint else None
        if version is None:
            return replace(of_calls(tasks[:CALLS_MAX]), truncated=len(tasks) > CALLS_MAX)
        own = [task for task in tasks if task.scope == run.key]
        return of_document(version.document, own, is_terminal(RUN, run.state))
