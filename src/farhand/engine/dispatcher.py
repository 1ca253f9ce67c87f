"""Hands queued jobs to workers. Woken by what changes (enqueue, release, attach, a due retry); never polls.

One pass looks at the head of every lane, most urgent first, chooses a worker, and promises what it needs;
`handover` makes leases of the promises. What could not be placed keeps the sentence that says why. What a
report will let go is promised before it is recorded, so that the leases are made in its transaction.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from farhand_worker import protocol

from ..model import Job, Json
from ..placement import Placement
from ..resources import lacks, to_go_on
from ..store import Store
from ..store.calls import called_by
from ..store.jobs import Leased
from ..store.reports import Report
from ..suitability import last_word
from .ahead import Ahead, Recalls
from .bus import Bus
from .choosing import RESERVE_AFTER_S, Beyond, Choosing, Chosen
from .consequences import Consequences
from .fitness import ARGUMENTS, MISSING, Fitness
from .fleet import Fleet
from .handover import RETRY_S, Grant, HandOver
from .member import Holding, Member
from .queue import Lane, Order, Queue, limit_of, order_of
from .service import Service, Wakeup, delay_until

log = logging.getLogger("farhand")

_ENDS = frozenset({protocol.Result, protocol.Exit})
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
        beyond: Beyond | None = None,
    ) -> None:
        super().__init__()
        self._store = store
        self._queue = queue
        self._now = queue.steady.now
        self._fleet = fleet
        self._consequences = consequences
        self._wakeup = wakeup
        self._fitness = fitness
        self._beyond = beyond or Beyond()
        self._told = set[str]()
        self._choosing = Choosing(fleet, queue, fitness, reserve_after_s, self._beyond)
        self._ahead = Ahead(fleet, queue, fitness)
        self._recalls = Recalls(fleet, lambda: self.holding_back)
        self._unserved: list[tuple[Job, Lane]] = []
        self._reserve_at: float | None = None
        self._grants: list[Grant] | None = None
        self._hands = HandOver(
            store, queue, fleet, consequences, bus, wakeup, lambda: self.holding_back, handed_over
        )
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
            self._queue.ripen(self._now())
            if not self.holding_back:
                self._pass()
            due_at = min((at for at in (self._queue.next_due_at(), self._reserve_at) if at), default=None)
            await self._wakeup.wait(delay_until(due_at, self._now))

    def _pass(self) -> None:
        """Promise slots until nothing more can be placed. A lane whose head cannot be placed is done with."""
        now = self._now()
        self._reserve_at = None
        self._unserved = []
        self._choosing.review()
        for member, job in self._fleet.unblocked():
            self._let_go_on(member, job)
        lanes = self._queue.lanes()
        self._serve_descendants(lanes, now)
        while lanes:
            _, lane = heapq.heappop(lanes)
            job = self._queue.head(lane)
            if job is not None and self._was_placed(job, lane, now):
                self._push(lanes, lane)
        self._recalls.look()
        self._queue.counted = frozenset(lane for _, lane in self._unserved)
        self._beyond.lacking(self._unserved)

    def _let_go_on(self, member: Member, job: Job) -> None:
        """A job that was blocked takes a slot again, before anything that is queued."""
        if member.link is not None and not lacks(to_go_on(job.ask), member.candidate.in_use, member.capacity):
            member.promise_to_go_on(job)
            self._hands.in_background(self._proceed(member, job))

    async def _proceed(self, member: Member, job: Job) -> None:
        after: Job | None = None
        try:
            after = await self._store.jobs.proceed(job.id, job.lease or 0, member.capacity)
        except Exception:  # whatever it was: it is asked for again
            log.exception("job %s could not go on, trying again", job.id)
            await asyncio.sleep(RETRY_S)
        finally:
            member.settle(job.id)
        if after is None:
            await asyncio.sleep(RETRY_S)
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
                self._promise(job, chosen, lane)
                given_back = self._fleet.given_back()

    def _was_placed(self, job: Job, lane: Lane, now: float) -> bool:
        try:
            return self._place(job, lane, now)
        except Exception:  # whatever it was: those behind it wait for no fault of theirs
            if job.id not in self._told:  # at each pass it would fill the log
                self._told.add(job.id)
                log.exception("job %s could not be looked at", job.id)
            self._queue.explain(lane, "it could not be looked at; the server's log says why")
            return False

    def _place(self, job: Job, lane: Lane, now: float) -> bool:
        """Hand the head of a lane over, or say why not."""
        if full := self._limit_reached(job):
            self._queue.explain(lane, full)
            return False
        chosen = self._choosing.choose(job, lane, now)
        if chosen is not None:
            self._promise(job, chosen, lane)
            return True
        self._queue.explain(lane, lambda: self._choosing.explain(job, self._now()))
        if self._choosing.may_be_hopeless(job) and self._look_into(job, self._choosing.explain(job, now)):
            return True
        if self._choosing.is_unserved(job):
            self._unserved.append((job, lane))
        due_at = self._choosing.reserve(job, lane, now)
        if due_at is not None:
            self._reserve_at = min(due_at, self._reserve_at or due_at)
        return False

    def _look_into(self, job: Job, placement: Placement) -> bool:
        """Ask what is not known of the workers; whether the job fails, as it never will go anywhere.

        What it asks for is held by those that wait for it, or its code is against the last worker and no
        other machine can be had.
        """
        self._fitness.look_into(job, placement.refusals)
        last = last_word(placement.refusals)
        if last is not None and self._beyond.may_come(job):
            return False
        if last is not None:
            note = self._beyond.note(job)
            message = f"{last.worker} {last.message}" + (f"; {note}" if note else "")
            self._give_up(job, _FAILED[last.code], message, self._fitness.error(job, last))
        elif placement.hopeless:
            self._give_up(job, "unplaceable", placement.message, None)
        return last is not None or placement.hopeless

    def _give_up(self, job: Job, reason: str, message: str, error: Json | None) -> None:
        self._queue.take(job)
        self._hands.in_background(self._fail(job, reason, message, error))

    async def _fail(self, job: Job, reason: str, message: str, error: Json | None) -> None:
        try:
            await self._consequences.of(self._store.jobs.fail(job.id, reason, message, error, time.time()))
        except Exception:  # whatever it was: the job has left the queue, and nothing else would put it back
            log.exception("job %s could not be failed, trying again", job.id)
            await asyncio.sleep(RETRY_S)
            self._hands.put_back(job)
        else:
            self._wakeup.set()

    def _limit_reached(self, job: Job) -> str:
        """In words, when as many runs of the job's flow are under way as it allows; empty otherwise."""
        limit = limit_of(job)
        if limit is None:
            return ""
        under_way = self._fleet.running_of(job.flow) + self._hands.promised_of(job.flow)
        if under_way < limit:
            return ""
        return f"waits for another run of {job.flow} to end; {under_way} of at most {limit} are under way"

    def _promise(self, job: Job, chosen: Chosen, lane: Lane) -> None:
        self._queue.take(job)
        self._choosing.placed(job, chosen.member)
        room = 0 if chosen.fell_back else self._ahead.room(job, chosen.member)
        more = self._send_ahead(job, lane, chosen.member, room)
        self._hand_over([self._hands.grant(job, chosen), *more])

    def _hand_over(self, grants: list[Grant]) -> None:
        if self._grants is None:
            self._hands.begin(grants)
        else:
            self._grants.extend(grants)

    def _send_ahead(
        self, like: Job, lane: Lane, member: Member, room: int, behind: int | None = None
    ) -> list[Grant]:
        """Up to ``room`` calls like one that has a slot, to wait on that slot behind it."""
        count = min(room, self._ahead.share(like, lane)) if room else 0
        found = self._ahead.take(like, lane, count) if count else []
        for job in found:
            self._choosing.placed(job, member)
        return [self._hands.share(job, Chosen(member), behind) for job in found]

    def _lengthen(self, ended: list[tuple[Member, Holding]]) -> None:
        """Send more to the slots on which something ended and something else goes on."""
        lines = {(member, holding.job.line): holding for member, holding in ended}
        for (member, line), last in lines.items():
            left = member.left_in(line)
            there = len(left) + member.joining[line] - 1
            if there < 0 or any(holding.job.blocked for holding in left) or self._waits_to_go_on(member):
                continue
            like = left[0].job if left else last.job
            most = self._ahead.room_behind(like, member)
            lane = self._ahead.next_for(member, like) if there <= most // 2 else None
            if lane is not None:
                self._hand_over(self._send_ahead(like, lane, member, most - there, line))

    def _waits_to_go_on(self, member: Member) -> bool:
        """Whether a slot of a worker is for a job that was blocked."""
        return any(holder is member for holder, _ in self._fleet.unblocked())

    # ------------------------------------------------------------ ahead of a commit

    def foresee(self, reports: Sequence[Report], worker: str) -> list[Grant]:
        """Who gets what reports that are about to be recorded let go: the slot of an attempt that ends,
        and a worker for each call that they ask for and that nothing is queued before.

        Each grant is to be finished or undone.
        """
        if self.holding_back:
            return []
        ended: list[tuple[Member, Holding]] = []
        told: list[tuple[Holding, Any]] = []
        calls: list[tuple[Job, protocol.Call]] = []
        for report in reports:
            held = self._fleet.holder(report.job)
            if held is None or held[1].lease != report.lease or held[0].name != worker:
                continue
            events = report.events
            if type(events[0]) is protocol.Started:
                held[1].began_at = events[0].at
            if type(events[-1]) in _ENDS:
                ended.append(held)
                told.append((held[1], events[-1]))
                held[0].part_with(report.lease)
            for event in events:
                if type(event) is protocol.Call and not event.ask.get("flavor"):
                    calls.append((held[1].job, event))
        if self._anybody_waits:
            self._ahead.note(told)
            return self._foreseen(ended, calls) if ended or calls else []
        if told:  # what those who ended took decides nothing before somebody waits
            self._consequences.turn.afterwards(partial(self._ahead.note, told))
        return self._foreseen([], calls) if calls else []

    @property
    def _anybody_waits(self) -> bool:
        """Whether a slot that is free now may be for somebody who is there already."""
        waiting = self._queue.waits or self._fleet.blocks or self._fleet.running_ahead
        return bool(waiting or self._choosing.reserves or self._unserved)

    def _foreseen(
        self, ended: list[tuple[Member, Holding]], calls: list[tuple[Job, protocol.Call]]
    ) -> list[Grant]:
        self._grants = grants = list[Grant]()
        try:
            if ended or self._wakeup.is_set:
                self._pass()
            if ended:
                self._lengthen(ended)
            if calls:
                self._place_ahead(calls)
        finally:
            self._grants = None
        return grants

    def claim(self, job: Job) -> Grant | None:
        """The worker that a job which is about to be queued can have at once, if nobody waits before it.

        The grant is to be settled by `started`, or dropped.
        """
        now = self._now()
        if self.holding_back or self._wakeup.is_set or job.not_before > now or self._limit_reached(job):
            return None
        if self._queue.waits and self._queue.head(self._queue.lane_for(job, now)) is not None:
            return None
        chosen = self._choosing.choose(job, None, now)
        if chosen is None:
            return None
        self._choosing.placed(job, chosen.member)
        return self._hands.grant(job, chosen)

    def started(self, grant: Grant, leased: Leased | None) -> None:
        """The job that was granted a worker is stored, with its lease unless the store did not agree."""
        if leased is None:
            self._hands.queue(grant)
        else:
            self._hands.finish(grant, leased)

    def drop(self, grant: Grant) -> None:
        """The job that was granted a worker was not stored."""
        self._hands.withdraw(grant)
        self._wakeup.set()

    def finish(self, grants: list[Grant], leased: Sequence[Leased | None]) -> None:
        """The report is recorded, and with it the leases that the store agreed to."""
        self._hands.finish_all(grants, leased)

    def undo(self, reports: Sequence[Report], grants: list[Grant]) -> None:
        """The reports were not recorded."""
        for report in reports:
            held = self._fleet.holder(report.job)
            if held is not None and held[1].lease == report.lease:
                held[0].keep(report.lease)
        for grant in grants:
            self._hands.undo(grant)

    def _place_ahead(self, calls: list[tuple[Job, protocol.Call]]) -> None:
        """Choose for calls that are about to be queued, as long as they would be first in their lanes."""
        now = self._now()
        full: set[Lane] = set()
        in_vain: tuple[object, ...] = ()
        for parent, event in calls:
            shape = parent.id, event.entry, event.ask, event.settings
            if shape == in_vain:
                continue
            try:
                job = called_by(parent, event, f"{parent.id} {event.key}", now)
            except (msgspec.ValidationError, UnicodeEncodeError):
                continue  # the store refuses it in a moment, and says why, or takes it cleaned
            lane = self._queue.lane_for(job, now) if full or self._queue.waits else None
            if lane is not None and (lane in full or self._queue.head(lane) is not None):
                in_vain = shape
                continue
            chosen = self._choosing.choose(job, None, now)
            if chosen is None:
                full.add(lane or self._queue.lane_for(job, now))
                in_vain = shape
            elif self._grants is not None:
                self._choosing.placed(job, chosen.member)
                self._grants.append(self._hands.grant(job, chosen, event.key))

    async def settle(self) -> None:
        """Wait for the hand-overs under way."""
        await self._hands.settle()
