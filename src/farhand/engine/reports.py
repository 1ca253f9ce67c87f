"""What workers report: recorded in one transaction a batch, then followed up."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from farhand_worker import protocol

from ..store import Store
from ..store.changes import Recorded
from ..store.tasks import outcome_body
from .consequences import Consequences
from .dispatcher import Dispatcher
from .fleet import Fleet
from .handover import Grant
from .importchecks import ImportChecks

_PAGE_BYTES = protocol.FRAME_BYTES_MAX // 2
"""A page of kept outcomes travels in one frame."""


class Reports:
    """Records batches of events. Every write is checked against the job's current lease by the store."""

    def __init__(
        self,
        store: Store,
        consequences: Consequences,
        fleet: Fleet,
        imports: ImportChecks,
        limited: Callable[[], None] = lambda: None,
        dispatcher: Dispatcher | None = None,
    ) -> None:
        self._store = store
        self._consequences = consequences
        self._fleet = fleet
        self._imports = imports
        self._limited = limited
        self._dispatcher = dispatcher

    async def record(self, event: protocol.Event, worker: str) -> int:
        """Record a batch that ``worker`` has sent; returns the last number recorded.

        Raises `StaleLease`, `StoreFailed` (try again), or `ProtocolViolation` for a batch that is malformed
        or leaves a gap.
        """
        kinds = set(map(type, event.events))
        events = [_typed(entry) for entry in event.events] if list in kinds else event.events
        if self._imports.owns(event.job):
            return self._imports.record(event.job, event.lease, event.source, event.first, events, worker)
        recorded, grants = await self._record(event, events, worker)
        started = protocol.Started in (kinds if events is event.events else map(type, events))
        if self._fleet.reported(event.job, event.lease, time.monotonic(), started):
            self._limited()
        self._consequences.follow(recorded.changes)
        if self._dispatcher is not None:
            self._dispatcher.finish(grants, recorded.leased)
        return recorded.seq

    async def _record(
        self, event: protocol.Event, events: list[Any], worker: str
    ) -> tuple[Recorded, list[Grant]]:
        """Record a batch, and in its transaction the leases of jobs that need what it lets go."""
        dispatcher = self._dispatcher
        grants = [] if dispatcher is None else dispatcher.foresee(event.job, event.lease, worker, events)
        try:
            recorded = await self._store.reports.record(
                event.job,
                event.lease,
                event.source,
                event.first,
                events,
                time.time(),
                worker,
                [grant.claim for grant in grants],
            )
        except BaseException:  # what was foreseen is not so, also after a cancel
            if dispatcher is not None:
                dispatcher.undo(event.job, event.lease, grants)
            raise
        return recorded, grants

    async def kept(self, job_id: str, after: int) -> dict[str, Any]:
        """A page of the outcomes that earlier attempts of this job kept, for the engine to replay."""
        items: list[dict[str, Any]] = []
        size = 0
        for task in await self._store.tasks.kept(job_id, after):
            item: dict[str, Any] = {"number": task.number, "key": task.key, "body": outcome_body(task)}
            if task.seeded:
                item["seeded"] = True
            size += len(protocol.dumps(item))
            if items and size > _PAGE_BYTES:
                break
            items.append(item)
        return {"items": items, "more": len(items) > 0}

    async def is_current(self, job_id: str, lease: int, worker: str) -> bool:
        """Whether ``worker`` holds the job, and by its current lease."""
        if self._imports.owns(job_id):
            return self._imports.is_current(job_id, lease, worker)
        return await self._store.reports.is_current(job_id, lease, worker)


def _typed(entry: Any) -> Any:
    """The event in an entry of a frame; what was read the quick way is one already."""
    if type(entry) is not list:
        return entry
    try:
        kind, body = entry[0], entry[1]
        return msgspec.convert(body, protocol.EVENTS[kind], strict=False)
    except (msgspec.ValidationError, KeyError, IndexError, TypeError) as error:
        raise protocol.ProtocolViolation(f"not an event of this protocol: {error}") from error
