"""Hands queued jobs to workers. Woken by what changes (enqueue, release, attach, a due retry); never polls.

One pass looks at the head of every lane, most urgent first, chooses a worker, and promises what it needs.
The lease itself is one compare-and-set in the store; several are made at once and share a commit. What
could not be placed keeps the sentence that says why.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from farhand_worker import protocol

from ..errors import FarhandError
from ..lifecycle import Ending
from ..model import Job, Json
from ..placement import Placement
from ..resources import Capacity, lacks, to_go_on
from ..store import Store
from ..store.jobs import Leased
from ..suitability import last_word
from .bus import Bus, Notice
from .choosing import RESERVE_AFTER_S, Choosing, Chosen
from .consequences import Consequences
from .fitness import ARGUMENTS, MISSING, Fitness
from .fleet import Fleet, Member
from .queue import Lane, Order, Queue, limit_of, order_of
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
        reserve_after_s: float = RESERVE_AFTER_S,
    ) -> None:
        super().__init__()
        self._store = store
        self._queue = queue
        self._fleet = fleet
        self._consequences = consequences
        self._bus = bus
        self._wakeup = wakeup
        self._fitness = fitness
        self._choosing = Choosing(fleet, queue, fitness, reserve_after_s)
        self._reserve_at: float | None = None
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
            due_at = min((at for at in (self._queue.next_due_at(), self._reserve_at) if at), default=None)
            await self._wakeup.wait(delay_until(due_at, time.time))

    def _pass(self) -> None:
        """Promise slots until nothing more can be placed. A lane whose head cannot be placed is done with."""
        now = time.time()
        self._reserve_at = None
        self._choosing.review()
        for member, job in self._fleet.unblocked():
            self._let_go_on(member, job)
        lanes = self._queue.lanes()
        self._serve_descendants(lanes, now)
        while lanes:
            _, lane = heapq.heappop(lanes)
            job = self._queue.head(lane)
            if job is not None and self._place(job, lane, now):
                self._push(lanes, lane)

    def _let_go_on(self, member: Member, job: Job) -> None:
        """A job that was blocked takes a slot again, before anything that is queued."""
        if member.link is not None and not lacks(to_go_on(job.ask), member.candidate.in_use, member.capacity):
            member.promise_to_go_on(job)
            self._in_background(self._proceed(member, job))

    async def _proceed(self, member: Member, job: Job) -> None:
        after: Job | None = None
        try:
            after = await self._store.jobs.proceed(job.id, job.lease or 0, member.capacity)
        except FarhandError as error:
            log.error("job %s could not go on, trying again: %s", job.id, error)
            await asyncio.sleep(_RETRY_S)
        finally:
            member.settle(job.id)
        if after is None:
            await asyncio.sleep(_RETRY_S)
            self._wakeup.set()
            return
        self._fleet.changed(after)
        if member.link is not None:  # else a reattach says it again
            member.link.send(protocol.Proceed(after.id, after.lease or 0, after.block))

    def _push(self, lanes: list[tuple[Order, Lane]], lane: Lane) -> None:
        head = self._queue.head(lane)
        if head is not None:
            heapq.heappush(lanes, (order_of(head), lane))

    def _serve_descendants(self, lanes: list[tuple[Order, Lane]], now: float) -> None:
        """Slots that blocked runs gave back go to calls first, whatever else is more urgent."""
        given_back = self._fleet.given_back()
        for _, lane in sorted(lanes) if given_back else ():
            while given_back and (job := self._queue.head(lane)) is not None and job.parent_job is not None:
                chosen = self._choosing.choose(job, lane, now, given_back)
                if chosen is None or not any(kin.blocked for kin in self._fleet.kin_of(job)):
                    break
                self._promise(job, chosen)
                given_back = self._fleet.given_back()

    def _place(self, job: Job, lane: Lane, now: float) -> bool:
        """Hand the head of a lane over, or say why not."""
        full = self._limit_reached(job)
        if full:
            self._queue.explain(lane, full)
            return False
        chosen = self._choosing.choose(job, lane, now)
        if chosen is not None:
            self._promise(job, chosen)
            return True
        self._queue.explain(lane, lambda: self._choosing.explain(job, time.time()))
        if self._choosing.may_be_hopeless(job) and self._look_into(job, self._choosing.explain(job, now)):
            return True
        due_at = self._choosing.reserve(job, lane, now)
        if due_at is not None:
            self._reserve_at = min(due_at, self._reserve_at or due_at)
        return False

    def _look_into(self, job: Job, placement: Placement) -> bool:
        """Ask what is not known of the workers; whether the job fails, as it never will go anywhere.

        What it asks for is held by those that wait for it, or its code is against the last worker.
        """
        self._fitness.look_into(job, placement.refusals)
        last = last_word(placement.refusals)
        if last is not None:
            message, error = f"{last.worker} {last.message}", self._fitness.error(job, last)
            self._give_up(job, _FAILED[last.code], message, error)
        elif placement.hopeless:
            self._give_up(job, "unplaceable", placement.message, None)
        return last is not None or placement.hopeless

    def _give_up(self, job: Job, reason: str, message: str, error: Json | None) -> None:
        self._queue.take(job)
        self._in_background(self._fail(job, reason, message, error))

    async def _fail(self, job: Job, reason: str, message: str, error: Json | None) -> None:
        try:
            changes = await self._store.jobs.fail(job.id, reason, message, error, time.time())
        except Exception:  # whatever it was: the job has left the queue, and nothing else would put it back
            log.exception("job %s could not be failed, trying again", job.id)
            await asyncio.sleep(_RETRY_S)
            self._put_back(job)
        else:
            self._consequences.follow(changes)
            self._wakeup.set()

    def _limit_reached(self, job: Job) -> str:
        """In words, when as many runs of the job's flow are under way as it allows; empty otherwise."""
        limit = limit_of(job)
        if limit is None:
            return ""
        under_way = self._fleet.running_of(job.flow) + self._promised[job.flow]
        if under_way < limit:
            return ""
        return f"waits for another run of {job.flow} to end; {under_way} of at most {limit} are under way"

    def _promise(self, job: Job, chosen: Chosen) -> None:
        self._queue.take(job)
        self._choosing.placed(job, chosen.member)
        chosen.member.promise(job, chosen.fell_back)
        self._promised[job.flow] += job.kind == "run"
        self._in_background(self._hand_over(job, chosen))

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._handing.add(task)
        task.add_done_callback(self._handing.discard)

    async def _hand_over(self, job: Job, chosen: Chosen) -> None:
        member = chosen.member
        link = member.link
        try:
            leased = await self._store.jobs.lease(
                job.id, member.name, member.capacity, time.time(), member.git, fell_back=chosen.fell_back
            )
            if leased is not None and leased.job.lease is not None:
                self._fleet.hold(member, leased.job, leased.job.lease)
        except Exception:  # whatever it was: the job has left the queue, and nothing else would put it back
            log.exception("job %s could not be leased, trying again", job.id)
            await asyncio.sleep(_RETRY_S)
            self._put_back(job)
            return
        finally:
            member.settle(job.id)
            self._promised[job.flow] -= job.kind == "run"
        if leased is None:
            await self._reconsider(job)
        elif link is None or link is not member.link:
            await self._take_back(leased)
        else:
            self._queue.relane(leased.job.id, time.time())
            link.send(_assign(leased, member.capacity))
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
        "isolated": settings.isolated,
        "secrets": settings.secrets,
        "nested": leased.job.nested,
        "called": leased.called,
        "in_order": settings.in_order,
    }
    return {name: value for name, value in known.items() if value}
