"""Deletes what is old: runs that ended long ago with all they left, deleted flows, blobs that nobody names.

Everything goes in slices. A slice is one transaction that may hold the writer for `SLICE_S`; how many rows
that is, is learned from the slices before. Between slices the writer belongs to the runs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ..blobs import Blobs
from ..errors import Conflict, StoreFailed
from ..sdk.ids import first_id
from ..store import Store
from ..store.changes import Effects
from ..store.retention import Slice
from ..store.runs import Wanted
from . import cursors
from .service import Service, Wakeup

log = logging.getLogger("farhand")

LOOK_S = 600.0
"""How often the pruner looks for what has become too old."""

GRACE_S = 86400.0
"""A blob that nobody names is kept as long as this, since somebody may be about to name it."""

SLICE_S = 0.020
"""What a slice aims at; 50 ms is the most that anybody may hold the writer."""

ROWS_MIN, ROWS_MAX = 10, 5000
_BATCH = 100


@dataclass(slots=True)
class Counters:
    """What the pruner has done since the server started. ``longest_s``: the longest slice."""

    slices: int = 0
    rows: int = 0
    runs: int = 0
    blobs: int = 0
    longest_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Deleted:
    """One batch of a deletion that was asked for. ``next`` is the cursor of what is left, None at the end."""

    deleted: int
    refused: int
    next: str | None


class Pruner(Service):
    """Keeps the store from growing for ever.

    ``keep_s`` 0 keeps all runs, ``keep_audit_s`` 0 all of the audit log. ``needed`` names blobs that are in
    use without a record.
    """

    name = "pruner"

    def __init__(
        self,
        store: Store,
        blobs: Blobs,
        needed: Callable[[], Collection[str]] = tuple,
        *,
        keep_s: float = 0.0,
        keep_audit_s: float = 0.0,
    ) -> None:
        super().__init__()
        self.counters = Counters()
        self._store = store
        self._blobs = blobs
        self._keep_s = keep_s
        self._keep_audit_s = keep_audit_s
        self._needed = needed
        self._rows = 200
        self._wakeup = Wakeup()
        self._sweeping = asyncio.Lock()

    async def _work(self) -> None:
        while True:
            try:
                await self.prune(time.time())
                await self.sweep(time.time())
            except StoreFailed as error:
                log.warning("nothing more is deleted for the moment: %s", error)
            await self._wakeup.wait(LOOK_S)

    async def prune(self, now: float) -> None:
        """Delete what is too old, and the runs of deleted flows."""
        await self._delete_all(lambda: self._store.retention.doomed(_BATCH))
        if self._keep_audit_s > 0:
            await self._delete_old("audit", now - self._keep_audit_s)
        if self._keep_s <= 0:
            return
        before = now - self._keep_s
        await self._delete_all(lambda: self._store.retention.expired(before, _BATCH))
        for table in ("events", "fires"):
            await self._delete_old(table, before)

    async def sweep(self, now: float) -> None:
        """Delete blobs that no record names and nobody touched for `GRACE_S`."""
        moment = now - GRACE_S
        await asyncio.to_thread(self._blobs.sweep_partial, moment)
        old = await asyncio.to_thread(self._blobs.older_than, moment)
        if not old:
            return
        async with self._sweeping:
            named = await self._store.retention.digests()
            for digest in set(old) - named - set(self._needed()):
                self.counters.blobs += await asyncio.to_thread(self._blobs.delete, digest, moment)

    @asynccontextmanager
    async def keeping_blobs(self) -> AsyncGenerator[None]:
        """While this is open, no blob is deleted."""
        async with self._sweeping:
            yield

    async def delete_flow(
        self,
        flow: str,
        *,
        forced: bool = False,
        project: str = "",
        expected: str | None = None,
        effects: Effects | None = None,
    ) -> int:
        """Hide a flow and its runs at once, and delete them in the background; returns how many runs.

        With ``forced`` also those that are not over, each as soon as it is; with a ``project`` also one that
        this project has. ``expected`` and ``effects`` are as for `Versions.put`.
        """
        runs = await self._store.retention.delete_flow(
            flow, time.time(), forced=forced, project=project, expected=expected, effects=effects
        )
        self._store.flows.forget()
        self._wakeup.set()
        return runs

    async def delete_run(self, run: str) -> None:
        """Delete one run. Raises `Conflict` while it is not over."""
        _, refused = await self._delete([run])
        if refused:
            raise Conflict(f"run {run} is not over; cancel it first")

    async def delete_runs(
        self, limit: int, cursor: str | None, *, before: float | None, **conditions: str | None
    ) -> Deleted:
        """Delete one batch of runs, newest first; those that are not over are refused.

        ``before``: created before that moment; ``conditions`` are those of `Wanted`. Ask again with
        ``next`` until it is None. Asking anew from the beginning goes on as well.
        """
        start = cursors.of_runs(cursor) or (None if before is None else first_id(before))
        page = await self._store.runs.page(limit, start, Wanted(**conditions))
        deleted, refused = await self._delete([run.id for run in page.items])
        return Deleted(deleted, refused, page.next)

    async def _delete_old(self, table: str, before: float) -> None:
        while (piece := await self._store.retention.delete_old(table, before, self._rows)).rows:
            await self._count(piece)

    async def _delete_all(self, find: Callable[[], Awaitable[Sequence[str]]]) -> None:
        """Delete what ``find`` finds until it finds nothing, or only what cannot be deleted."""
        while runs := await find():
            before = self.counters.rows
            await self._delete(runs)
            if self.counters.rows == before:
                log.warning("%s old runs cannot be deleted, such as %r", len(runs), runs[0])
                return

    async def _delete(self, runs: Sequence[str]) -> tuple[int, int]:
        """Delete all that is over of these runs, slice by slice; how many went, and how many were refused."""
        deleted = refused = 0
        async for piece in self._slices(runs):
            deleted += len(piece.deleted)
            refused += len(piece.refused)
        self.counters.runs += deleted
        return deleted, refused

    async def _slices(self, runs: Sequence[str]) -> AsyncGenerator[Slice]:
        left = list(runs)
        while left:
            piece = await self._store.retention.delete(left, self._rows)
            yield piece
            left = left[len(piece.deleted) + len(piece.refused) :]
            await self._count(piece)

    async def _count(self, piece: Slice) -> None:
        """Note a slice, learn from it, and leave the writer to others for as long as it took."""
        self.counters.slices += 1
        self.counters.rows += piece.rows
        self.counters.longest_s = max(self.counters.longest_s, piece.took_s)
        if piece.took_s > SLICE_S:
            self._rows = max(ROWS_MIN, self._rows // 2)
        elif piece.took_s < SLICE_S / 2:
            self._rows = min(ROWS_MAX, self._rows * 5 // 4)
        await asyncio.sleep(piece.took_s)
