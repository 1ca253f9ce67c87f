"""Which worker gets a queued job now: `placement` over the workers as they are, and who keeps room for whom.

A job that has waited ``reserve_after_s`` reserves the worker where it fits soonest, so that smaller ones do
not pass it for ever. A worker has one reservation. It ends when its job is placed or leaves the queue, when
the worker drains or leaves, and when a job of a higher priority comes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from ..model import LOCAL_WORKER, Job
from ..placement import (
    Kin,
    Placement,
    Refusal,
    Reservation,
    Wanted,
    choose,
    place,
    recall,
    refuse_server,
    soonest,
)
from ..resources import lacks, need
from .fitness import Fitness
from .fleet import Fleet
from .member import OFFLINE, ONLINE, Member
from .queue import Lane, Queue, earlier_until, moment

RESERVE_AFTER_S = 60.0
"""So long a job waits before it reserves a worker, unless the settings say otherwise."""

_AWAY_TOLD = 3
_AWAY_LISTED = 20


@dataclass(frozen=True, slots=True)
class Chosen:
    """Where a job goes. ``fell_back``: to the server, though that lacks what it prefers."""

    member: Member
    fell_back: bool = False


class Beyond:
    """What can be had beyond the workers that are there: nothing, unless somebody provides it."""

    def lacking(self, unserved: list[tuple[Job, Lane]]) -> None:
        """These are the heads of lanes that no worker which is there could ever serve, as of now."""

    def asked_for(self, worker: str) -> bool:
        """Whether a worker is a machine that was asked for, so that another could be."""
        return False

    def may_come(self, job: Job) -> bool:
        """Whether a machine can still be had for a job whose code is against all that are there."""
        return False

    def note(self, job: Job) -> str:
        """What was asked for on behalf of a job."""
        return ""


class Choosing:
    """Chooses, reserves, and says why not."""

    def __init__(
        self,
        fleet: Fleet,
        queue: Queue,
        fitness: Fitness,
        reserve_after_s: float = RESERVE_AFTER_S,
        beyond: Beyond | None = None,
    ) -> None:
        self._beyond = beyond or Beyond()
        self._fleet = fleet
        self._fitness = fitness
        self._queue = queue
        self._reserve_after_s = reserve_after_s
        self._reserved: dict[str, Member] = {}

    def wanted(self, job: Job, lane: Lane | None = None) -> Wanted:
        """A queued job as placement sees it."""
        earlier = "" if lane is None else lane.earlier
        kin = self._fleet.kin_of(job) if job.parent_job else ()
        until = earlier_until(job) if earlier else 0.0
        return Wanted(job.ask, job.id, job.priority, job.depth, earlier, until, kin)

    def choose(self, job: Job, lane: Lane | None, now: float, among: set[str] | None = None) -> Chosen | None:
        """The worker for a job now, or None; ``among``: one of these, if any.

        One that is about to be queued for the first time needs no lane.
        """
        wanted = self.wanted(job, lane)
        able = [
            member.candidate
            for member in self._able(job)
            if (among is None or member.name in among) and self._is_fit(job, member, wanted.earlier)
        ]
        found = choose(wanted, able, now)
        if found is not None:
            return Chosen(self._fleet.member(found.name))
        if job.ask.policy == "prefer" and among is None and self._may_fall_back(job, wanted):
            return Chosen(self._fleet.member(LOCAL_WORKER), fell_back=True)
        return None

    def _is_fit(self, job: Job, member: Member, earlier: str) -> bool:
        """Whether nothing in the job's code is against a worker. One that is full is not asked about.

        The one it was on is kept unless its code is against it for good: else it would be passed over.
        """
        if member.name == earlier:
            return self._could(job, member)
        has_room = member.candidate.room > 0 or not job.ask.slots
        return has_room and self._fitness.against(job, member) is None

    def _may_fall_back(self, job: Job, wanted: Wanted) -> bool:
        if wanted.ask.runs_on != "any":
            return False
        if any(member.name != LOCAL_WORKER and self._could(job, member) for member in self._able(job)):
            return False
        server = self._fleet.get(LOCAL_WORKER)
        if server is None or self._fitness.against(job, server) is not None:
            return False
        return refuse_server(wanted, server.candidate) is None

    def _able(self, job: Job) -> list[Member]:
        return self._fleet.able(job.ask)

    def _could(self, job: Job, member: Member) -> bool:
        """Whether the code of a job would not keep it from a worker for good."""
        against = self._fitness.against(job, member)
        return against is None or not against.for_good

    def may_be_hopeless(self, job: Job) -> bool:
        """Whether something is against a worker that has to be looked into, or that may end the job."""
        if any(kin.blocked for kin in self._fleet.kin_of(job)):
            return True
        return any(self._fitness.against(job, member) is not None for member in self._able(job))

    def explain(self, job: Job, now: float) -> Placement:
        """Every worker with the reason against it, as things are when this is asked."""
        wanted = replace(self.wanted(job, self._queue.lane_of(job)), beside=self._beside(job, now))
        found = place(wanted, self._fitness.candidates(job), now)
        away = self._away(job)
        if not all(refusal.for_good for refusal in found.refusals):
            return replace(found, away=away)
        recalled = (f"{refusal.worker} {refusal.message}" for refusal in away[:_AWAY_TOLD])
        told = filter(None, (found.message, *recalled, self._beyond.note(job)))
        return replace(found, message="; ".join(told), away=away)

    def _beside(self, job: Job, now: float) -> tuple[Kin, ...]:
        """Those of its run that read along and keep what they have until this very job has ended.

        That is so where nothing of the run goes on: what is handed over waits, and each call that is queued
        lacks what such a reader holds. What reads keeps its cards, so the stream's next value never comes.
        """
        found = self._fleet.beside(job)
        calls = {call.ask: call for call in self._queue.waiting_calls(job.run)} if found else {}
        for call in calls.values():
            lane = self._queue.lane_of(call)
            wanted = replace(self.wanted(call, lane), beside=found)
            if lane is None or not place(wanted, self._fitness.candidates(call), now).hopeless:
                return ()
        return found

    def _away(self, job: Job) -> tuple[Refusal, ...]:
        """The workers that are offline and could take a job, those that left last first. A machine that was
        asked for for a while does not come back."""
        members = [m for m in self._fleet if m.state == OFFLINE and m.ends_at is None and self._could(job, m)]
        members.sort(key=lambda member: -member.away_at)
        now = time.time()
        away = [(member.candidate, moment(member.away_at), member.barred(now)) for member in members]
        found = recall(job.ask, away)
        return found[:_AWAY_LISTED]

    def is_unserved(self, job: Job) -> bool:
        """Whether a job that could not be placed waits for a machine that is not there.

        A worker that could take it and is merely busy will do so, unless it is one that was asked for: of
        those there may be more.
        """
        return not any(self._could(job, member) and self._will(job, member) for member in self._able(job))

    def _will(self, job: Job, member: Member) -> bool:
        if not self._beyond.asked_for(member.name):
            return True
        return not member.draining and not lacks(need(job.ask), member.candidate.in_use, member.capacity)

    # ------------------------------------------------------------ reservations

    @property
    def reserves(self) -> bool:
        """Whether room is kept for any job."""
        return bool(self._reserved)

    def review(self) -> None:
        """Drop the reservations whose job or worker is gone."""
        for job_id, member in list(self._reserved.items()):
            if not self._queue.knows(job_id) or member.state != ONLINE or member.draining:
                self._end(job_id)

    def reserve(self, job: Job, lane: Lane, now: float) -> float | None:
        """Keep room for a job that could not be placed, if it has waited long; else when it will have."""
        due_at = max(job.queued_at, job.not_before) + self._reserve_after_s
        if now < due_at:
            return due_at
        if job.id not in self._reserved:
            able = [member.candidate for member in self._able(job) if self._could(job, member)]
            name = soonest(self.wanted(job, lane), able)
            if name is not None:
                member = self._fleet.member(name)
                if member.reserved is not None:
                    self._end(member.reserved.job)
                member.reserve(Reservation(job.id, job.priority, need(job.ask)))
                self._reserved[job.id] = member
        return None

    def placed(self, job: Job, member: Member) -> None:
        """A job goes to a worker: its reservation has done its work, and one that it outranks there ends."""
        if not self._reserved:
            return
        self._end(job.id)
        if member.reserved is not None and member.reserved.priority < job.priority:
            self._end(member.reserved.job)

    def _end(self, job_id: str) -> None:
        member = self._reserved.pop(job_id, None)
        if member is not None and member.reserved is not None and member.reserved.job == job_id:
            member.reserve(None)
