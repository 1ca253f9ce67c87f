"""What workers report: recorded in one transaction a batch, then followed up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from farhand_worker import protocol

from ..errors import FarhandError
from ..store import Recorded, Store
from ..store.answers import Answer, failed, succeeded
from ..store.reports import Report
from ..store.tasks import outcome_body
from .consequences import Consequences
from .dispatcher import Dispatcher
from .fleet import Fleet
from .handover import Grant
from .importchecks import ImportChecks

Recording = Answer[Sequence[int]]
"""What comes of batches that are being recorded: for each the last number recorded."""

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

    def record_all(self, events: Sequence[protocol.Event], worker: str) -> Recording:
        """Record batches that ``worker`` has sent in one transaction, all or none of them.

        What comes is, for each, the last number recorded; all that follows from the batches has been seen to
        by then. Or else `StaleLease`, `StoreFailed` (try again), or `ProtocolViolation` for a batch that is
        malformed or leaves a gap.
        """
        checked: dict[int, int] = {}
        stored: list[Report] = []
        try:
            for n, event in enumerate(events):
                if self._imports.owns(event.job):
                    checked[n] = self._check(event, worker)
                else:
                    stored.append(_typed(event))
        except (FarhandError, protocol.ProtocolViolation) as error:
            return failed(error)
        if not checked:
            return self._record(stored, worker)
        answer = self._record(stored, worker) if stored else succeeded(list[int]())
        return answer.then(lambda seqs: _in_order(len(events), checked, seqs.result()))

    def _check(self, event: protocol.Event, worker: str) -> int:
        """Take what an import check says, which is not stored."""
        events = _typed(event).events
        return self._imports.record(event.job, event.lease, event.source, event.first, events, worker)

    def _record(self, reports: list[Report], worker: str) -> Recording:
        """Record batches, and in their transaction the leases of jobs that need what they let go."""
        dispatcher = self._dispatcher
        grants = [] if dispatcher is None else dispatcher.foresee(reports, worker)
        claims = [grant.claim for grant in grants]
        recorded = self._store.reports.record_all(reports, time.time(), worker, claims)
        return recorded.then(partial(self._follow, reports, grants))

    def _follow(self, reports: list[Report], grants: list[Grant], answer: Answer[Recorded]) -> Sequence[int]:
        """See to what follows, in the turn of the loop in which the commit is heard of."""
        dispatcher = self._dispatcher
        try:
            recorded = answer.result()
        except Exception:  # whatever it was: what was foreseen is not so
            if dispatcher is not None:
                dispatcher.undo(reports, grants)
            raise
        self._consequences.follow(recorded.changes)
        if dispatcher is not None:
            dispatcher.finish(grants, recorded.leased)
        self._consequences.turn.afterwards(partial(self._note, reports))
        return recorded.seqs

    def _note(self, reports: list[Report]) -> None:
        """These jobs were not silent, and the limits of those that have started begin."""
        now = time.monotonic()
        for report in reports:
            started = any(type(event) is protocol.Started and not event.importing for event in report.events)
            if self._fleet.reported(report.job, report.lease, now, started):
                self._limited()

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

    def is_held(self, event: protocol.Event, worker: str) -> bool:
        """Whether ``worker`` holds the job by that lease, as far as is known without asking the store."""
        held = self._fleet.holder(event.job)
        if held is None:
            return self._imports.owns(event.job)
        return held[1].lease == event.lease and held[0].name == worker

    async def is_current(self, job_id: str, lease: int, worker: str) -> bool:
        """Whether ``worker`` holds the job, and by its current lease."""
        if self._imports.owns(job_id):
            return self._imports.is_current(job_id, lease, worker)
        held = self._fleet.holder(job_id)
        if held is not None and (held[0].name, held[1].lease) == (worker, lease):
            return True  # as the store says, or said a moment ago
        return await self._store.reports.is_current(job_id, lease, worker)


def _in_order(count: int, apart: Mapping[int, int], others: Sequence[int]) -> list[int]:
    """Numbers of which some, by their place, were found apart from the others."""
    rest = iter(others)
    return [apart[n] if n in apart else next(rest) for n in range(count)]


def _typed(event: protocol.Event) -> Report:
    """The batch in a frame, with its events by type; what was read the quick way has them already."""
    events: list[Any] = event.events
    for entry in events:
        if type(entry) is list:
            events = list(map(_typed_entry, events))
            break
    return Report(event.job, event.lease, event.source, event.first, events)


def _typed_entry(entry: Any) -> Any:
    """The event in an entry of a frame."""
    try:
        kind, body = entry[0], entry[1]
        return msgspec.convert(body, protocol.EVENTS[kind], strict=False)
    except (msgspec.ValidationError, KeyError, IndexError, TypeError) as error:
        raise protocol.ProtocolViolation(f"not an event of this protocol: {error}") from error
