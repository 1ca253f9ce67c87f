"""Runs as people handle them: started, looked at, cancelled."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

from ..errors import NotFound, Usage
from ..model import (
    Artifact,
    Attempt,
    Event,
    Flow,
    Job,
    LogLine,
    MetricPoint,
    Page,
    Run,
    TaskRun,
)
from ..sdk import parameters
from ..sdk.ids import new_id
from ..store import Store
from .consequences import Consequences
from .fleet import LOST, Fleet
from .queue import Queue

_IDEMPOTENCY_KEY_MAX = 200
_HELD = ("starting", "running", "cancelling")


class Runs:
    """Every operation on runs. Ids may be given by a prefix that only one run has."""

    def __init__(self, store: Store, queue: Queue, fleet: Fleet, consequences: Consequences) -> None:
        self._store = store
        self._queue = queue
        self._fleet = fleet
        self._consequences = consequences

    async def start(self, flow: str, params: dict[str, Any], idempotency_key: str | None = None) -> Run:
        """Queue a run. Raises `NotFound` for an unknown flow and `InvalidParameters`, naming the field.

        A second request with the same idempotency key returns the first one's run.
        """
        if idempotency_key is not None and not 0 < len(idempotency_key) <= _IDEMPOTENCY_KEY_MAX:
            raise Usage(f"an idempotency key has 1 to {_IDEMPOTENCY_KEY_MAX} characters")
        found = await self._store.flows.get(flow)
        if found is None or not found.present:
            known = ", ".join(f.name for f in await self._store.flows.list() if f.present) or "none"
            raise NotFound(f"there is no flow {flow!r}; this server has: {known}")
        parameters.check(found.schema, params)
        run, job = _make(found, params, idempotency_key, time.time())
        run, job, created = await self._store.runs.create(run, job)
        if created:
            self._consequences.follow_start(run, job)
        return run

    async def get(self, id: str) -> Run:
        """The run of an id, or of the start of one."""
        run = await self._store.runs.get(await self._whole(id))
        if run is None:
            raise NotFound(f"there is no run {id!r}")
        return self._explained(run)

    async def page(
        self, limit: int, cursor: str | None = None, flow: str | None = None, state: str | None = None
    ) -> Page[Run]:
        """Runs, the newest first."""
        page = await self._store.runs.page(limit, cursor, flow, state)
        return Page([self._explained(run) for run in page.items], page.next)

    async def attempts(self, id: str) -> list[Attempt]:
        """Every hand-off of the run's own job, the first one first."""
        return await self._store.runs.attempts(await self._whole(id))

    async def cancel(self, id: str) -> Run:
        """Cancel the run and all that it started. Raises `Conflict` when it has ended already."""
        whole = await self._whole(id)
        self._consequences.follow(await self._store.runs.cancel(whole, time.time()))
        return await self.get(whole)

    async def tasks(self, id: str, after: int = 0, limit: int = 200) -> Page[TaskRun]:
        """The run's task calls in the order they began."""
        return await self._store.tasks.page(await self._whole(id), after, limit)

    def why_waiting(self, task: TaskRun) -> str:
        """Why a placed call is still queued, in one sentence; empty when it is not."""
        return self._queue.reason_of_job(task.placed or "") if task.state == "queued" else ""

    async def logs(self, id: str, after: int = 0, limit: int = 1000) -> Page[LogLine]:
        """Log lines in the order they were recorded."""
        return await self._store.logs.page(await self._whole(id), after, limit)

    async def metrics(self, id: str, after: int = 0, limit: int = 1000) -> Page[MetricPoint]:
        """Points of the run's series."""
        return await self._store.metrics.page(await self._whole(id), after, limit)

    async def artifacts(self, id: str) -> list[Artifact]:
        """What the run saved."""
        return await self._store.artifacts.list(await self._whole(id))

    async def events(self, after: int = 0, limit: int = 200, run: str | None = None) -> Page[Event]:
        """What happened, to one run or at all."""
        return await self._store.events.page(after, limit, None if run is None else await self._whole(run))

    async def lease_is_current(self, job: str, lease: int) -> bool:
        """Whether a worker may still write for this job."""
        return await self._store.reports.is_current(job, lease)

    async def _whole(self, prefix: str) -> str:
        found = await self._store.runs.find(prefix) if prefix else []
        if not found:
            raise NotFound(f"there is no run {prefix!r}; `farhand runs list` shows the latest")
        if len(found) > 1:
            raise Usage(f"several runs begin with {prefix!r}; give more of the id")
        return found[0]

    def _explained(self, run: Run) -> Run:
        """The run, with what only this process knows: why it waits, or that its worker is not heard of."""
        if run.state == "queued" and not run.message:
            return replace(run, message=self._queue.reason_of_run(run.id))
        member = self._fleet.get(run.worker) if run.worker and run.state in _HELD else None
        if member is not None and member.state == LOST:
            return replace(run, reason="worker_lost", message="worker went away mid-call")
        return self._with_waiting_calls(run) if run.state == "running" else run

    def _with_waiting_calls(self, run: Run) -> Run:
        """The run, saying of the first placed call that waits for a machine why it does."""
        told = [
            (job, why)
            for job in self._queue.waiting_calls(run.id)
            if (why := self._queue.reason_of_job(job.id))
        ]
        if not told:
            return run
        (job, why), more = told[0], len(told) - 1
        others = f" and {more} more" if more else ""
        return replace(run, message=f"{run.message}; {job.name}{others} {why}")


def _make(flow: Flow, params: dict[str, Any], idempotency_key: str | None, now: float) -> tuple[Run, Job]:
    text = json.dumps(params, separators=(",", ":"), sort_keys=True)
    run = Run(
        id=new_id(now),
        flow=flow.name,
        state="queued",
        reason="",
        message="",
        params=text,
        created_at=now,
        project=flow.project,
        bundle=flow.bundle,
        fingerprint=flow.fingerprint,
        idempotency_key=idempotency_key,
    )
    job = Job(
        id=new_id(now),
        run=run.id,
        kind="run",
        state="queued",
        flow=flow.name,
        entry=flow.entry,
        args={"enc": "json", "text": text},
        bundle=flow.bundle,
        ask=flow.ask,
        settings=flow.settings,
        age_at=now,
        created_at=now,
        name=flow.name,
    )
    return run, job
