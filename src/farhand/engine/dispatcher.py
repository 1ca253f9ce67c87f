"""Hands queued jobs to workers. Woken by what changes (enqueue, release, attach, a due retry); never polls.

One pass looks at the head of every lane, most urgent first, asks `placement.place`, and promises a slot.
The lease itself is one compare-and-set in the store; several are made at once and share a commit. What
could not be placed keeps the sentence that says why.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from farhand_worker import protocol

from ..errors import FarhandError
from ..lifecycle import Ending
from ..model import Job
from ..placement import Placement, Refusal, place
from ..store import Store
from ..store.jobs import Leased
from ..suitability import last_word
from .bus import Bus, Notice
from .consequences import Consequences
from .fitness import ARGUMENTS, MISSING, Fitness
from .fleet import Fleet, Member
from .queue import Queue, limit_of
from .service import Service, Wakeup, delay_until

log = logging.getLogger("farhand")

_RETRY_S = 0.5
_FAILED = {ARGUMENTS: "parameters", MISSING: "import"}
"""What was against the last worker → the reason of the failure."""


class Dispatcher(Service):
    """The loop that turns a free slot and a queued job into an attempt."""

    name = "dispatcher"

    def __init__(
        self,
        store: Store,
        queue: Queue,
        fleet: Fleet,
        consequences: Consequences,
        bus: Bus,
        wakeup: Wakeup,
        fitness: Fitness,
        handed_over: Callable[[float], None] = lambda _: None,
    ) -> None:
        super().__init__()
        self._store = store
        self._queue = queue
        self._fleet = fleet
        self._consequences = consequences
        self._bus = bus
        self._wakeup = wakeup
        self._fitness = fitness
        self._promised: Counter[str] = Counter()
        self._handed_over = handed_over
        self._handing: set[asyncio.Task[None]] = set()
        self.holding_back = True
        """True until the server has heard who holds what, and again when it stops."""

    def release(self) -> None:
        """Begin to hand jobs over."""
        self.holding_back = False
        self._wakeup.set()

    def hold_back(self) -> None:
        """Hand nothing over from now on."""
        self.holding_back = True

    async def _work(self) -> None:
        while True:
            self._queue.ripen(time.time())
            if not self.holding_back:
                self._pass()
            await self._wakeup.wait(delay_until(self._queue.next_due_at(), time.time))

    def _pass(self) -> None:
        """Promise slots until nothing more can be placed."""
        blocked: set[object] = set()
        while True:
            heads = [job for job in self._queue.heads() if self._queue.lane_of(job) not in blocked]
            if not heads:
                return
            for job in heads:
                full = self._limit_reached(job)
                placement = place(job.ask, self._fitness.candidates(job)) if not full else None
                if placement is None or placement.worker is None:
                    blocked.add(self._queue.lane_of(job))
                    self._queue.explain(self._queue.lane_of(job), placement or full)
                    if placement is not None:
                        self._look_into(job, placement)
                    continue
                self._promise(job, self._fleet.member(placement.worker))
                break

    def _limit_reached(self, job: Job) -> str:
        """In words, when as many runs of the job's flow are under way as it allows; empty otherwise."""
        limit = limit_of(job)
        if limit is None:
            return ""
        under_way = self._fleet.running_of(job.flow) + self._promised[job.flow]
        if under_way < limit:
            return ""
        return f"waits for another run of {job.flow} to end; {under_way} of at most {limit} are under way"

    def _look_into(self, job: Job, placement: Placement) -> None:
        """Ask what is not known of the workers; fail the job when its code is against the last of them."""
        self._fitness.look_into(job, placement.refusals)
        last = last_word(placement.refusals)
        if last is not None:
            self._queue.take(job)
            self._in_background(self._fail(job, last))

    async def _fail(self, job: Job, last: Refusal) -> None:
        error = self._fitness.error(job, last)
        message = f"{last.worker} {last.message}"
        try:
            changes = await self._store.jobs.fail(job.id, _FAILED[last.code], message, error, time.time())
        except Exception:  # whatever it was: the job has left the queue, and nothing else would put it back
            log.exception("job %s could not be failed, trying again", job.id)
            await asyncio.sleep(_RETRY_S)
            self._put_back(job)
        else:
            self._consequences.follow(changes)
            self._wakeup.set()

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._handing.add(task)
        task.add_done_callback(self._handing.discard)

    def _promise(self, job: Job, member: Member) -> None:
        self._queue.take(job)
        member.promised += 1
        self._promised[job.flow] += job.kind == "run"
        self._in_background(self._hand_over(job, member))

    async def _hand_over(self, job: Job, member: Member) -> None:
        link = member.link
        try:
            leased = await self._store.jobs.lease(job.id, member.name, member.parallel, time.time())
            if leased is not None and leased.job.lease is not None:
                self._fleet.hold(member, leased.job, leased.job.lease)
        except Exception:  # whatever it was: the job has left the queue, and nothing else would put it back
            log.exception("job %s could not be leased, trying again", job.id)
            await asyncio.sleep(_RETRY_S)
            self._put_back(job)
            return
        finally:
            member.promised -= 1
            self._promised[job.flow] -= job.kind == "run"
        if leased is None:
            await self._reconsider(job)
        elif link is None or link is not member.link:
            await self._take_back(leased)
        else:
            link.send(_assign(leased))
            link.expect(leased.job.id, leased.job.lease or 0)
            if leased.job.attempt == 1:
                self._handed_over(time.time() - max(job.created_at, job.not_before))
            self._bus.publish(Notice("run", leased.run.id, leased.run))

    def _put_back(self, job: Job) -> None:
        self._queue.add(job, time.time())
        self._wakeup.set()

    async def _reconsider(self, job: Job) -> None:
        """The claim failed: the job left the queue, or the worker was full. Look at the store's word."""
        try:
            known = await self._store.jobs.get(job.id)
        except Exception:  # whatever it was: the next claim is decided by the store again
            log.exception("job %s could not be looked at, trying again", job.id)
            known = job
        if known is not None and known.state == "queued":
            await asyncio.sleep(_RETRY_S)
            self._put_back(known)

    async def _take_back(self, leased: Leased) -> None:
        """The session went away before the assign was sent; nobody knows of this lease."""
        lease = leased.job.lease or 0
        ending = Ending("stopped", "handoff_failed", "the worker went away before the job was handed over")
        while True:
            try:
                changes = await self._store.reports.end(leased.job.id, lease, ending, time.time())
                break
            except FarhandError as error:
                if self.holding_back:
                    return
                log.error("job %s could not be taken back, trying again: %s", leased.job.id, error)
                await asyncio.sleep(_RETRY_S)
        if changes is not None:
            self._consequences.follow(changes)

    async def settle(self) -> None:
        """Wait for the hand-overs under way."""
        await asyncio.gather(*self._handing, return_exceptions=True)


def _assign(leased: Leased) -> protocol.Assign:
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
        fingerprint=job.fingerprint,
    )


def _for_the_worker(leased: Leased) -> dict[str, Any]:
    """What agent and engine have to know of a job, beyond what `Assign` has fields for."""
    settings = leased.job.settings
    known = {
        "silence_timeout_s": settings.silence_timeout_s,
        "isolated": settings.isolated,
        "secrets": settings.secrets,
        "nested": leased.job.nested,
        "called": leased.called,
        "in_order": settings.in_order,
    }
    return {name: value for name, value in known.items() if value}
