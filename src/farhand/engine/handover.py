"""From a worker that was chosen for a job to the `assign` on its session, and back if that fails.

The lease is one compare-and-set in the store. It is made in a transaction of its own (`begin`), or, when a
report that is about to be recorded lets the job go (`grant`), in that report's, and then followed up
(`finish`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from farhand_worker import protocol

from ..lifecycle import Ending
from ..model import SERVICE, Job
from ..resources import Capacity
from ..store import Store
from ..store.answers import Answer
from ..store.claims import Claim
from ..store.jobs import Leased
from .bus import Bus, Notice
from .choosing import Chosen
from .consequences import Consequences
from .fleet import Fleet
from .member import Link
from .queue import Queue
from .service import Wakeup

log = logging.getLogger("farhand")

RETRY_S = 0.5
"""So long after a failure it is tried again."""


@dataclass(frozen=True, slots=True, eq=False)
class Grant:
    """A job, the worker it was promised, and the session that was there then.

    ``key`` is that of a call which the report asks for; its ``job`` is what the call's will be like.
    ``behind`` is the slot that it is to share, by the lease under which that was taken; ``follows``: it
    shares that of the grant before it.
    """

    job: Job
    chosen: Chosen
    link: Link | None
    key: str = ""
    behind: int | None = None
    follows: bool = False

    @property
    def shares(self) -> bool:
        """Whether it takes no slot of its own."""
        return self.follows or self.behind is not None

    @property
    def claim(self) -> Claim:
        """What the store is asked for."""
        member = self.chosen.member
        job, call = ("", self.job) if self.key else (self.job.id, None)
        fell_back, run = self.chosen.fell_back, self.job.run
        return Claim(
            member.name, member.capacity, job, self.key, member.git, fell_back, run,
            self.behind, self.follows, call,
        )  # fmt: skip


class HandOver:
    """Makes leases of promises. ``stopping`` says whether what fails is left to the next server."""

    def __init__(
        self,
        store: Store,
        queue: Queue,
        fleet: Fleet,
        consequences: Consequences,
        bus: Bus,
        wakeup: Wakeup,
        stopping: Callable[[], bool],
        handed_over: Callable[[float], None],
    ) -> None:
        self._store = store
        self._queue = queue
        self._fleet = fleet
        self._consequences = consequences
        self._bus = bus
        self._wakeup = wakeup
        self._stopping = stopping
        self._handed_over = handed_over
        self._promised: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._leasing: set[Answer[None]] = set()

    def promised_of(self, flow: str) -> int:
        """How many runs of a flow are promised a worker and not handed over yet."""
        return self._promised[flow]

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it beside everything else, and before `settle` returns."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """Wait for what is under way, and for what comes of it."""
        while self._tasks or self._leasing:
            await asyncio.gather(*self._tasks, *self._leasing, return_exceptions=True)

    # ------------------------------------------------------------ promises

    def grant(self, job: Job, chosen: Chosen, key: str = "") -> Grant:
        """Promise the worker's room to a job that is not in the queue (any more)."""
        chosen.member.promise(job, chosen.fell_back)
        if job.kind == "run":
            self._promised[job.flow] += 1
        return Grant(job, chosen, chosen.member.link, key)

    def share(self, job: Job, chosen: Chosen, behind: int | None) -> Grant:
        """A place on a slot that another has: on one that is held, or on that of the grant before."""
        if behind is not None:
            chosen.member.joining[behind] += 1
        return Grant(job, chosen, chosen.member.link, behind=behind, follows=behind is None)

    def begin(self, grants: list[Grant]) -> None:
        """Make the leases, and hand the jobs over in the turn in which their commit is heard of."""
        leased = self._store.jobs.lease([grant.claim for grant in grants], time.time())
        settled = leased.then(partial(self._leased, grants))
        self._leasing.add(settled)
        settled.follow(self._leasing.discard)

    def _leased(self, grants: list[Grant], answer: Answer[tuple[Leased | None, ...]]) -> None:
        try:
            leased = answer.result()
        except Exception:  # whatever it was: the jobs have left the queue, and nothing else puts them back
            log.exception("job %s could not be leased, trying again", grants[0].job.id)
            for grant in grants:
                self.withdraw(grant)
            self.in_background(self._put_back_later(grants))
        else:
            self.finish_all(grants, leased)

    async def _put_back_later(self, grants: list[Grant]) -> None:
        await asyncio.sleep(RETRY_S)
        for grant in grants:
            self.put_back(grant.job)

    def finish_all(self, grants: Sequence[Grant], leased: Sequence[Leased | None]) -> None:
        """The store has decided on several grants. Who watches the run of calls is told once."""
        runs = dict[str, None]()
        for grant, made in zip(grants, leased, strict=True):
            self.finish(grant, made)
            if made is not None and made.run is None and made.job.kind != SERVICE:
                runs[made.job.run] = None
        if runs:
            self._consequences.turn.afterwards(partial(self._tell_of_calls, runs))

    def _tell_of_calls(self, runs: Iterable[str]) -> None:
        for run in runs:
            self._bus.publish(Notice("logs", run))

    def finish(self, grant: Grant, leased: Leased | None) -> None:
        """The store has decided on a grant."""
        member = grant.chosen.member
        if leased is not None and leased.job.lease is not None:
            self._fleet.hold(member, leased.job, leased.job.lease)
        self._consequences.turn.afterwards(partial(self.withdraw, grant))
        if leased is None:
            if not grant.key:
                self.in_background(self._reconsider(grant.job))
        elif grant.link is None or grant.link is not member.link:
            self.in_background(self._take_back(leased))
        else:
            self._assign(leased, grant.link, member.capacity)

    def queue(self, grant: Grant) -> None:
        """The store has the job queued, and did not agree to the grant."""
        self.withdraw(grant)
        self.put_back(grant.job)

    def undo(self, grant: Grant) -> None:
        """The report was not recorded, and so nothing of what it was to let go was."""
        self.withdraw(grant)
        if not grant.key:
            self.put_back(grant.job)

    def put_back(self, job: Job) -> None:
        """The job is queued, as it was before it was promised a worker."""
        self._queue.add(job, self._queue.steady.now())
        self._wakeup.set()

    def withdraw(self, grant: Grant) -> None:
        """Promise nothing any more."""
        if grant.behind is not None:
            grant.chosen.member.joined(grant.behind)
        if grant.shares:
            return
        grant.chosen.member.settle(grant.job.id)
        if grant.job.kind == "run":
            self._promised[grant.job.flow] -= 1

    # ------------------------------------------------------------ what comes of them

    def _assign(self, leased: Leased, link: Link, capacity: Capacity) -> None:
        link.send(_assign(leased, capacity))
        self._consequences.turn.afterwards(partial(self._assigned, leased, link))

    def _assigned(self, leased: Leased, link: Link) -> None:
        """The worker has the job by now, or will have."""
        job = leased.job
        link.expect(job.id, job.lease or 0)
        self._queue.relane(job.id, self._queue.steady.now())
        if job.attempt == 1:
            self._handed_over(time.time() - max(job.created_at, job.not_before))
        if job.kind == SERVICE:
            self._bus.publish(Notice("service", record=job.name))
        elif leased.run is not None:
            self._bus.publish(Notice("run", job.run, leased.run))

    async def _reconsider(self, job: Job) -> None:
        """The claim failed: the job left the queue, or the worker was full. Look at the store's word."""
        try:
            recorded = await self._store.jobs.get(job.id)
            known = None if recorded is None else self._queue.steady.of(recorded)
        except Exception:  # whatever it was: the next claim is decided by the store again
            log.exception("job %s could not be looked at, trying again", job.id)
            known = job
        if known is not None and known.state == "queued":
            await asyncio.sleep(RETRY_S)
            self.put_back(known)

    async def _take_back(self, leased: Leased) -> None:
        """The session went away before the assign was sent; nobody knows of this lease."""
        lease = leased.job.lease or 0
        ending = Ending("stopped", "handoff_failed", "the worker went away before the job was handed over")
        while True:
            try:
                ended = self._store.reports.end(leased.job.id, lease, ending, time.time())
                await self._consequences.of(ended)
                return
            except Exception:  # whatever it was: nobody else knows of this lease
                if self._stopping():
                    return
                log.exception("job %s could not be taken back, trying again", leased.job.id)
                await asyncio.sleep(RETRY_S)


def _assign(leased: Leased, capacity: Capacity) -> protocol.Assign:
    job = leased.job
    return protocol.Assign(
        job=job.id,
        lease=job.lease or 0,
        attempt=job.attempt,
        kind=job.kind,
        run=job.run,
        flow=job.flow,
        entry=job.entry,
        args=job.args,
        bundle=job.bundle,
        key=job.key,
        timeout_s=job.settings.timeout_s,
        strict=job.settings.strict_lease,
        kept=leased.kept,
        settings=_for_the_worker(leased),
        cpus=job.ask.cpus,
        devices=_devices(job, capacity),
        fingerprint=job.fingerprint,
        behind=job.behind,
    )


def _devices(job: Job, capacity: Capacity) -> list[str] | None:
    """The GPUs that the job's engine is to see; None: those that its worker sees."""
    if job.ask.gpus is None or (job.ask.gpus > 0 and capacity.devices is None):
        return None
    return list(job.devices)


def _for_the_worker(leased: Leased) -> dict[str, Any]:
    """What agent and engine have to know of a job, beyond what `Assign` has fields for."""
    settings = leased.job.settings
    known = {
        "silence_timeout_s": settings.silence_timeout_s,
        "timeout_words": settings.timeout_words,
        "silence_words": settings.silence_words,
        "isolated": settings.isolated,
        "secrets": settings.secrets,
        "nested": leased.job.nested,
        "called": leased.called,
        "in_order": settings.in_order,
        "along": settings.along,
    }
    return {name: value for name, value in known.items() if value}
