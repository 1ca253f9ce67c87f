"""Workers as people look at them: what the store remembers, brought up to date by what is attached now."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ..errors import NotFound
from ..model import LOCAL_WORKER, SERVICE, Attempt, Event, Page, Worker
from ..store import Store
from . import cursors
from .fleet import Fleet
from .member import AWAITED, LOST, OFFLINE, ONLINE, Holding, Member

_PAST_MAX = 1000
NOTHING: Mapping[str, int] = {"cpus": 0, "gpus": 0, "ram_mb": 0}
"""The amounts that a job may ask for, none of each."""


@dataclass(frozen=True, slots=True)
class Held:
    """What is in a slot, or a service, which takes none: a job and its run. ``name``: the flow's, or that of
    the placed task or service; ``takes`` what it asked for besides a slot; ``behind``: it waits on a slot for
    the one before it to end."""

    job: str
    run: str
    flow: str
    name: str
    lease: int
    attempt: int
    takes: str = ""
    kind: str = "run"
    behind: bool = False


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A worker and what is in its slots. ``message`` is a sentence about its state; ``needs_token``: it is
    offline, and its token has been revoked or has expired; ``trouble``: why it can take nothing, in words."""

    worker: Worker
    message: str
    draining: bool = False
    holds: tuple[Held, ...] = ()
    clock_ahead_s: float | None = None
    used: Mapping[str, int] = field(default_factory=lambda: dict(NOTHING))
    needs_token: bool = False
    trouble: str = ""

    @property
    def drained(self) -> bool:
        """Whether it takes nothing new and nothing is left on it."""
        return self.draining and not self.trouble and self.worker.state == ONLINE and not self.holds

    @property
    def shown(self) -> str:
        """Its state in one word, as people are shown it."""
        if self.draining and self.worker.state == ONLINE:
            return "drained" if self.drained else "draining"
        return self.worker.state

    @property
    def warning(self) -> str:
        """What somebody may want to change about it: more slots than cores, as far as those are known."""
        cores = (self.worker.reported.get("inventory") or {}).get("cpus")
        if not cores or self.worker.state == OFFLINE or self.worker.parallel <= cores:
            return ""
        slots = self.worker.parallel
        return (
            f"{slots} slots are above the {_count(cores, 'core')} of that machine; the jobs will share them"
        )

    @property
    def slots_taken(self) -> int:
        """How many slots what it holds takes."""
        return _slots(self.holds)


@dataclass(frozen=True, slots=True)
class Past:
    """An attempt that a worker had, and what it was of: a flow, or a placed task."""

    attempt: Attempt
    name: str


class Workers:
    """Every worker that ever attached and was not forgotten."""

    def __init__(self, store: Store, fleet: Fleet) -> None:
        self._store = store
        self._fleet = fleet

    async def list(self) -> list[WorkerStatus]:
        """Every worker, by name."""
        return [self._status(worker) for worker in await self._store.workers.list()]

    async def get(self, name: str) -> WorkerStatus:
        """The worker of that name. Raises `NotFound`."""
        worker = await self._store.workers.get(name)
        if worker is None:
            own = "this server has no processors of its own (--parallel 0)"
            other = f"there is no worker {name!r}; `farhand workers list` shows them"
            raise NotFound(own if name == LOCAL_WORKER else other)
        return self._status(worker)

    async def events(
        self,
        limit: int = 50,
        cursor: str | None = None,
        worker: str | None = None,
        run: str | None = None,
        kind: str | None = None,
    ) -> Page[Event]:
        """A page of the event log, the newest first. Raises `Usage` for a cursor that no page gave."""
        return await self._store.events.latest(limit, cursors.of_entries(cursor), worker, run, kind)

    async def past(self, name: str, since: float) -> list[Past]:
        """The attempts the worker had since a moment, the newest first; a thousand at most."""
        found = await self._store.workers.attempts(name, since, _PAST_MAX)
        return [Past(attempt, of) for attempt, of in found]

    def _status(self, worker: Worker) -> WorkerStatus:
        """The worker with its state and last sign of life as this server knows them."""
        member = self._fleet.get(worker.name)
        if member is None:
            draining = worker.drained_by != ""
            return WorkerStatus(worker, sentence(worker, draining, 0, None), draining)
        state = LOST if member.state == AWAITED else member.state
        worker = replace(worker, state=state, parallel=member.parallel or worker.parallel)
        if member.heard_at is not None:
            worker = replace(worker, last_seen_at=time.time() - (time.monotonic() - member.heard_at))
        waiting = member.waiting_leases
        holds = tuple(_held(each, each.lease in waiting) for each in member.holdings.values())
        barred = member.barred(time.time())
        message = sentence(
            worker, member.draining, _slots(holds), self._left_s(member), barred, member.trouble
        )
        skew_s, used = member.skew_s, _used(member)
        return WorkerStatus(
            worker, message, member.draining, holds, skew_s, used, barred != "", member.trouble
        )

    def _left_s(self, member: Member) -> float | None:
        """How long until the leases of a silent worker have run out, where it is known."""
        if not member.holdings:
            return None
        ends = [self._fleet.expires_at(member, holding) for holding in member.holdings.values()]
        return max(0.0, min(ends) - time.monotonic())


def sentence(
    worker: Worker, draining: bool, held: int, left_s: float | None, barred: str = "", trouble: str = ""
) -> str:
    """What state a worker is in, and what that means for work; ``barred``: why it does not come back,
    ``trouble``: why it can take nothing."""
    jobs = _count(held, "job")
    if worker.state == OFFLINE:
        return f"is offline{'; ' * bool(barred)}{barred}" + (
            f"; it still drains when it is back, as {worker.drained_by} ordered" * draining
        )
    if worker.state != ONLINE:
        if not held:
            return "is not heard of; nothing waits for it"
        when = "" if left_s is None else f" in {left_s:.0f} s"
        return f"is not heard of; {jobs} queued again{when} unless it comes back"
    if draining:
        ordered = f"as {worker.drained_by} ordered" if worker.drained_by else "as it was told to end"
        why = f": {trouble}" if trouble else f", {ordered}"
        return f"takes nothing new{why}; " + (f"{jobs} to finish" if held else "it holds nothing any more")
    if worker.parallel == 0:
        return "is there, and has no slots"
    free = worker.parallel - held
    if free <= 0:
        return f"is busy: {held} of {worker.parallel} slots taken"
    return f"is there: {free} of {worker.parallel} slots free"


def _count(number: int, what: str) -> str:
    return f"1 {what}" if number == 1 else f"{number} {what}s"


def _slots(holds: Iterable[Held]) -> int:
    """How many slots jobs take; a service takes none, and neither does what waits behind another."""
    return sum(held.kind != SERVICE and not held.behind for held in holds)


def _held(holding: Holding, behind: bool) -> Held:
    job = holding.job
    takes = ", ".join(f"{amount} {unit}" for unit, amount in _amounts(holding).items() if amount)
    name = job.name or job.flow
    return Held(job.id, job.run, job.flow, name, holding.lease, job.attempt, takes, job.kind, behind)


def _amounts(holding: Holding) -> dict[str, int]:
    ask = holding.job.ask
    return {"cpus": ask.cpus or 0, "gpus": ask.gpus or 0, "ram_mb": ask.ram_mb or 0}


def _used(member: Member) -> dict[str, int]:
    """What the jobs in its slots asked for, added up."""
    waiting = member.waiting_leases
    amounts = [_amounts(each) for each in member.holdings.values() if each.lease not in waiting]
    return {name: sum(amount[name] for amount in amounts) for name in NOTHING}
