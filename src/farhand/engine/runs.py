"""Runs as people handle them: started, looked at, cancelled."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import Conflict, NotFound, Usage
from ..lifecycle import RUN, is_terminal
from ..model import (
    NAME_PATTERN,
    Artifact,
    Attempt,
    Event,
    Flow,
    Job,
    LogLine,
    MetricPoint,
    Page,
    Run,
)
from ..sdk import parameters
from ..sdk.ids import Random, first_id, new_id
from ..store import Leased, Store
from ..store.answers import Answer
from ..store.nested import Part
from ..store.runs import Wanted
from ..store.seeds import FAILURE, Seed
from . import cursors
from .adrift import Adrift, adrift, sentence
from .audit import Told
from .consequences import Consequences
from .dispatcher import Dispatcher
from .fleet import Fleet
from .handover import Grant
from .lookout import Lookout
from .masking import Masker
from .member import LOST, Holding, Member
from .queue import Queue

_IDEMPOTENCY_KEY_MAX = 200
_canonical = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode
_HELD = ("starting", "running", "cancelling")


@dataclass(frozen=True, slots=True)
class Series:
    """A numeric series of a run, in one line; what is not finite counts and is not compared."""

    name: str
    count: int
    last: float
    low: float | None
    high: float | None


class Runs:
    """Every operation on runs. Ids may be given by a prefix that only one run has."""

    def __init__(
        self,
        store: Store,
        queue: Queue,
        fleet: Fleet,
        consequences: Consequences,
        masker: Masker | None = None,
        dispatcher: Dispatcher | None = None,
        lookout: Lookout | None = None,
    ) -> None:
        self._lookout = lookout or Lookout(store)
        self._dispatcher = dispatcher
        self._random = Random()
        self._store = store
        self._queue = queue
        self._fleet = fleet
        self._consequences = consequences
        self._masker = masker or Masker()

    async def start(
        self,
        flow: str,
        params: dict[str, Any],
        idempotency_key: str | None = None,
        sweep: str | None = None,
        told: Told | None = None,
    ) -> Run:
        """Queue a run; the audit log is ``told`` in the same transaction, unless it is an earlier run's.

        Raises `NotFound` for an unknown flow, `UnknownFlavor`, and `InvalidParameters` naming the field.

        A second request with the same idempotency key returns the first one's run. Runs of one ``sweep``
        are found together.
        """
        check_key(idempotency_key)
        if sweep is not None and not re.fullmatch(NAME_PATTERN, sweep):
            raise Usage(f"a sweep's name reads like a-z, 0-9, '.', '_' and '-', at most 63, not {sweep!r}")
        run, job = await self.prepare(flow, params, idempotency_key)
        run = run if sweep is None else replace(run, sweep=sweep)
        return await self._create(run, job, told=told)

    async def prepare(
        self, flow: str, params: dict[str, Any], idempotency_key: str | None = None
    ) -> tuple[Run, Job]:
        """A run of the flow as its code is now, and its job, neither of them stored. Raises as `start`."""
        found = await self._lookout.find(flow)
        parameters.check(found.schema, params)
        return await self._make(found, params, idempotency_key)

    async def retry(
        self,
        id: str,
        since: str = FAILURE,
        params: dict[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """Queue a new run in place of one that has ended, taking over outcomes that it kept.

        ``since`` is failure (what completed is replayed), start (nothing is), or a task, by its name or
        the beginning of a call's key: it and all that was submitted after it run again. ``params``
        replace those of the run one by one. With other code or parameters only calls that were submitted
        before the first one without an outcome are replayed, and of those the ones whose arguments are the
        same. Raises `Conflict` for a run that has not ended or is a script, and what `start` does.
        """
        check_key(idempotency_key)
        source = await self._stored(id)
        if source.root is not None:
            raise Conflict(f"run {source.id} was called inside of run {source.root}; retry that one")
        if source.origin == "script":
            raise Conflict(f"run {source.id} is a script; run it again where it was started")
        if not is_terminal(RUN, source.state):
            raise Conflict(
                f"run {source.id} has not ended, it is {source.state}; cancel it first", state=source.state
            )
        found = await self._lookout.find(source.flow)
        asked = {**json.loads(source.params), **(params or {})}
        parameters.check(found.schema, asked)
        run, job = await self._make(found, asked, idempotency_key)
        changed = found.fingerprint != source.fingerprint or run.params != source.params
        seed = Seed(source.id, since, in_order=changed)
        job = replace(job, settings=replace(job.settings, in_order=changed))
        return await self._create(replace(run, retry_of=source.id), job, seed)

    async def _make(self, flow: Flow, params: dict[str, Any], idempotency_key: str | None) -> tuple[Run, Job]:
        """A run and its job, with the amounts of the flow's flavor as it is now."""
        ask = await self._store.flavors.resolve(flow.ask)
        asking = flow if ask is flow.ask else replace(flow, ask=ask)
        return _make(asking, params, idempotency_key, time.time(), self._random)

    async def _create(self, run: Run, job: Job, seed: Seed | None = None, told: Told | None = None) -> Run:
        if seed is None and run.idempotency_key is None and self._dispatcher is not None:
            grant = self._dispatcher.claim(job)
            if grant is not None:
                return await self._start(self._dispatcher, run, job, grant, told)
        its_own = run.idempotency_key is None
        creating = self._store.runs.create(run, job, seed, None if told is None else told.entry)
        if its_own:  # a free slot need not wait for the commit
            self._consequences.expect_start(job)

        def follow(answer: Answer[tuple[Run, Job, bool]]) -> Run:
            try:
                known, stored, created = answer.result()
            except Exception:  # whatever refused it: a start that is not stored is not waited for
                self._consequences.forget_start(job)
                raise
            if told is not None:
                told.written = created
            if created and its_own:
                self._consequences.tell_start(known)
            elif created:
                self._consequences.follow_start(known, stored)
            elif known.params != run.params:
                key = f"idempotency key {run.idempotency_key!r}"
                raise Conflict(
                    f"{key} belongs to run {known.id}, which has other parameters; use another key"
                )
            return known

        return await creating.then(follow)

    async def _start(
        self, dispatcher: Dispatcher, run: Run, job: Job, grant: Grant, told: Told | None
    ) -> Run:
        """Store a run that a worker is free for, with the lease of its job.

        It is handed over in the turn in which its commit is heard of, whoever asked for it, and also where
        they have given up meanwhile.
        """

        def follow(answer: Answer[Leased | None]) -> Run:
            try:
                leased = answer.result()
            except Exception:  # whatever it was, the promise is taken back
                dispatcher.drop(grant)
                raise
            if told is not None:
                told.written = True
            self._consequences.tell_start(run)
            dispatcher.started(grant, leased)
            return run

        return await self._store.runs.start(run, job, grant.claim, told and told.entry).then(follow)

    async def get(self, id: str) -> Run:
        """The run of an id, or of the start of one."""
        return self._explained(await self._stored(id), adrift(self._fleet))

    async def detailed(self, id: str) -> tuple[Run, list[Attempt]]:
        """The run of an id, or of the start of one, and every hand-off of its own job, in their order."""
        run = await self.get(id)
        return run, await self._store.runs.attempts(run.id)

    async def _stored(self, id: str) -> Run:
        """Programs give whole ids, which need not be looked for first."""
        run = await self._store.runs.get(id) or await self._store.runs.get(await self._whole(id))
        if run is None:
            raise NotFound(f"there is no run {id!r}")
        return run

    async def page(
        self,
        limit: int,
        cursor: str | None = None,
        flow: str | None = None,
        state: str | None = None,
        *,
        sweep: str | None = None,
        since: float | None = None,
        text: str | None = None,
        host: str | None = None,
        parent: str | None = None,
    ) -> Page[Run]:
        """Runs, the newest first; ``since``: created then or later; ``parent``: called by that run."""
        since_id = None if since is None else first_id(since)
        wanted = Wanted(flow, state, sweep, since_id, text, host, parent)
        page = await self._store.runs.page(limit, cursors.of_runs(cursor), wanted)
        lost = adrift(self._fleet)
        return Page([self._explained(run, lost) for run in page.items], page.next)

    async def counts(self) -> dict[str, int]:
        """How many runs are in each state that is not the end of one."""
        return await self._store.runs.counts()

    async def attempts(self, id: str) -> list[Attempt]:
        """Every hand-off of the run's own job, the first one first."""
        return await self._store.runs.attempts(await self._whole(id))

    async def cancel(self, id: str) -> Run:
        """Cancel the run and all that it started. Raises `Conflict` when it has ended already."""
        whole = await self._whole(id)
        await self._consequences.of(self._store.runs.cancel(whole, time.time()))
        return await self.get(whole)

    async def part(self, id: str) -> Part:
        """Where what belongs to a run is found: a flow that was called inside of one has it there."""
        return await self._store.runs.part(await self._whole(id))

    async def logs(self, id: str, after: int = 0, limit: int = 1000) -> Page[LogLine]:
        """Log lines in the order they were recorded."""
        part = await self.part(id)
        return await self._store.logs.page(part.root, after, limit, part.keys)

    async def metrics(self, id: str, after: int = 0, limit: int = 1000) -> Page[MetricPoint]:
        """Points of the run's series."""
        part = await self.part(id)
        return await self._store.metrics.page(part.root, after, limit, part.keys)

    async def series(self, id: str) -> list[Series]:
        """The run's series, in the order they first appeared."""
        found: dict[str, Series] = {}
        after = 0
        while True:
            page = await self.metrics(id, after, 10_000)
            for point in page.items:
                for name, value in point.values.items():
                    found[name] = _with_point(found.get(name), name, value)
            if page.next is None or not page.items:
                return list(found.values())
            after = page.items[-1].number

    async def artifacts(self, id: str) -> list[Artifact]:
        """What the run saved."""
        part = await self.part(id)
        return await self._store.artifacts.list(part.root, part.keys)

    async def events(self, after: int = 0, limit: int = 200, run: str | None = None) -> Page[Event]:
        """What happened, to one run or at all."""
        return await self._store.events.page(after, limit, None if run is None else await self._whole(run))

    async def _whole(self, prefix: str) -> str:
        found = await self._store.runs.find(prefix) if prefix else []
        if not found:
            raise NotFound(f"there is no run {prefix!r}; `farhand runs list` shows the latest")
        if len(found) > 1:
            raise Usage(f"several runs begin with {prefix!r}; give more of the id")
        return found[0]

    def _explained(self, run: Run, lost: Adrift) -> Run:
        """The run as people see it: no secret in its parameters, and with what only this process knows,
        why it waits, or that its worker is not heard of."""
        params = self._masker.json(run.params)
        run = run if params == run.params else replace(run, params=params)
        name = self._masker(run.name) if run.name else ""
        run = run if name == run.name else replace(run, name=name)
        if run.state == "queued":
            waiting = self._queue.waiting_for(run)
            return replace(run, message=_with_wait(run.message, waiting.message if waiting else ""))
        member = self._fleet.get(run.worker) if run.worker and run.state in _HELD else None
        if member is not None and member.state == LOST:
            return replace(run, reason="worker_lost", message="worker went away mid-call")
        if run.state != "running":
            return run
        return self._with_waiting_calls(self._with_lost_calls(run, lost.get(run.id, ())))

    def _with_lost_calls(self, run: Run, lost: Sequence[tuple[Member, Holding]]) -> Run:
        """The run, saying of the first placed call whose worker is not heard of when it goes on."""
        if not lost:
            return run
        name, why = lost[0][1].job.name, sentence(self._fleet, *lost[0])
        return replace(run, message=f"{run.message}; {name} {why}{_others(len(lost))}")

    def _with_waiting_calls(self, run: Run) -> Run:
        """The run, saying of the first placed call that waits for a machine why it does."""
        waiting = self._queue.waiting_calls(run.id)
        told = ((job, why) for job in waiting if (why := self._queue.reason_of_job(job.id)))
        job, why = next(told, (None, ""))
        if job is None:
            return run
        return replace(run, message=f"{run.message}; {job.name} {why}{_others(len(waiting))}")


def _with_wait(before: str, now: str) -> str:
    """What led a run back to the queue, and what it waits for there, each said once."""
    return before if now in before else f"{before}; {now}" if before else now


def _others(count: int) -> str:
    return f" (and {count - 1} more of its calls)" if count > 1 else ""


def _with_point(series: Series | None, name: str, value: float) -> Series:
    finite = isinstance(value, int | float) and math.isfinite(value)
    known = [] if series is None else [bound for bound in (series.low, series.high) if bound is not None]
    if finite:
        known.append(value)
    count = 1 if series is None else series.count + 1
    return Series(name, count, value, min(known, default=None), max(known, default=None))


def check_key(idempotency_key: str | None) -> None:
    """Raises `Usage` for an idempotency key that is empty or too long."""
    if idempotency_key is not None and not 0 < len(idempotency_key) <= _IDEMPOTENCY_KEY_MAX:
        raise Usage(f"an idempotency key has 1 to {_IDEMPOTENCY_KEY_MAX} characters")


def _make(
    flow: Flow,
    params: dict[str, Any],
    idempotency_key: str | None,
    now: float,
    random: Callable[[int], bytes],
) -> tuple[Run, Job]:
    text = _canonical(params)
    run = Run(
        id=new_id(now, random),
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
        id=new_id(now, random),
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
        queued_at=now,
        name=flow.name,
        priority=flow.settings.priority or 0,
        fingerprint=flow.fingerprint,
        git=flow.git,
    )
    return run, job
