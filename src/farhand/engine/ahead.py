"""Which jobs are handed over to wait on a slot behind another, so that none waits for a word in between.

A few that are alike share one slot of a worker: the same function of the same code with the same ask
and settings, which has been seen to take little time. Each has its own lease. Runs of a flow with a limit are
not among them. Nothing is sent ahead while a slot is free elsewhere, and no slot is sent more than its share
of what waits: the last ones of many are spread as widely as if each had been handed over by itself, unless
they take no longer than their way. What waits is asked back once another slot has had nothing to do for a
moment; the worker gives it back by itself when the one before takes long.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from farhand_worker import protocol

from ..lifecycle import RETURNED, SENT_AHEAD
from ..model import Job
from .fitness import Fitness
from .fleet import Fleet
from .member import ONLINE, Holding, Member
from .queue import Lane, Queue

SHORT_S = 0.02
"""A call that takes no longer than this may wait behind its like, and have its like wait behind it."""

TOGETHER_S = 0.1
"""What is handed over for one slot takes no longer than this, as far as it is known."""

RECALL_AFTER_S = 0.02
"""So long a slot is free before what waits behind another is asked back for it."""

_BRIEF_S = 0.01
"""For what takes no longer than this even the last ones are sent: their way here and there takes as long."""

_LEAST_S = 0.001
_UNKNOWN_S = 1.0
_KINDS_MAX = 1000
_HELD_UP_MAX = 10_000
_MOST_AT_FIRST = protocol.AHEAD_MAX / 2
_MORE = 0.25
_SHARES = 2
"""A slot is sent at most this part of its share of what waits: half of it."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What has been seen of calls of one kind: how long they take, and how many may wait for one.

    That is a little more after each that was not held up, and half as many after one that was.
    """

    took_s: float | None = None
    most: float = _MOST_AT_FIRST

    def took(self, seconds: float) -> Seen:
        """One has ended: the longest counts at once, and is forgotten by halves."""
        before_s = seconds if self.took_s is None else self.took_s
        return Seen(max(seconds, (before_s + seconds) / 2), min(self.most + _MORE, protocol.AHEAD_MAX))

    def given_back(self) -> Seen:
        """One waited too long."""
        return replace(self, most=self.most / 2)

    @property
    def is_brief(self) -> bool:
        """Whether to wait behind one takes no longer than to be sent once a slot is free."""
        return self.took_s is not None and self.took_s <= _BRIEF_S

    @property
    def room(self) -> int:
        """How many may wait behind one."""
        if self.took_s is None or self.took_s > SHORT_S:
            return 0
        return min(int(self.most), int(TOGETHER_S / max(self.took_s, _LEAST_S)))


def _took_s(began_at: float | None, end: Any) -> float:
    """How long user code ran, by its worker's clock: a report may wait for the upload of what it names."""
    if type(end) is protocol.Result and began_at is not None:
        return max(0.0, end.at - began_at)
    return _UNKNOWN_S


def _kind(job: Job) -> tuple[str, str]:
    return job.bundle, job.entry


class Ahead:
    """Knows how long calls take, and says how many may go ahead."""

    def __init__(self, fleet: Fleet, queue: Queue, fitness: Fitness) -> None:
        self._fleet = fleet
        self._queue = queue
        self._fitness = fitness
        self._seen: OrderedDict[tuple[str, str], Seen] = OrderedDict()
        self._held_up: OrderedDict[str, None] = OrderedDict()

    def note(self, ended: Sequence[tuple[Holding, Any]]) -> None:
        """Attempts have ended, each with this event."""
        if not ended:
            return
        held_up = dict[tuple[str, str], Job]()
        for holding, end in ended:
            job = holding.job
            if job.kind not in SENT_AHEAD:
                continue
            if type(end) is protocol.Exit and end.reason == RETURNED:
                if not holding.recalled:
                    held_up[_kind(job)] = job
                    self._held_up[job.id] = None
                continue
            self._held_up.pop(job.id, None)
            self._seen[_kind(job)] = self._of(job).took(_took_s(holding.began_at, end))
            self._seen.move_to_end(_kind(job))
        for kind, job in held_up.items():
            self._seen[kind] = self._of(job).given_back()
        while len(self._seen) > _KINDS_MAX:
            self._seen.popitem(last=False)
        while len(self._held_up) > _HELD_UP_MAX:
            self._held_up.popitem(last=False)

    def _of(self, job: Job) -> Seen:
        return self._seen.get(_kind(job), Seen())

    def room(self, job: Job, member: Member) -> int:
        """How many like a queued ``job`` may wait on one slot of a worker, once that has it."""
        return 0 if job.attempt else self.room_behind(job, member)

    def room_behind(self, job: Job, member: Member) -> int:
        """How many like ``job``, which has a slot of a worker, may wait there behind it."""
        if not member.ahead or not _shares(job) or not member.takes_work or member.reserved is not None:
            return 0
        return min(member.ahead, self._of(job).room)

    def share(self, job: Job, lane: Lane) -> int:
        """How many of those that wait with ``job`` one slot may be sent."""
        slots = sum(m.parallel for m in self._fleet.able(job.ask) if m.state == ONLINE and not m.draining)
        parts = _SHARES * max(1, slots)
        most = self._queue.about(lane) + (parts - 1 if self._of(job).is_brief else 0)
        return most // parts

    def take(self, like: Job, lane: Lane, count: int) -> list[Job]:
        """The first of a lane that are like a job, off the queue. What was held up once is not sent again."""
        found: list[Job] = []
        while len(found) < count:
            head = self._queue.head(lane)
            if head is None or head.id in self._held_up or not are_alike(head, like):
                break
            self._queue.take(head)
            found.append(head)
        return found

    def next_for(self, member: Member, like: Job) -> Lane | None:
        """The lane of what a worker would get next, if that is like ``job``: nothing is passed over."""
        for _, lane in sorted(self._queue.lanes()):
            head = self._queue.head(lane)
            if head is None or member not in self._fleet.able(head.ask):
                continue
            fits = are_alike(head, like) and self._fitness.against(head, member) is None
            return lane if fits else None
        return None


class Recalls:
    """Asks back what waits behind another, once a slot that could take it has been free for a moment."""

    def __init__(self, fleet: Fleet, holding_back: Callable[[], bool]) -> None:
        self._fleet = fleet
        self._holding_back = holding_back
        self._timer: asyncio.TimerHandle | None = None

    def look(self) -> None:
        """Slots may be free, and nothing in the queue is for them."""
        if self._fleet.running_ahead and self._timer is None and any(self._fleet.with_room()):
            self._timer = asyncio.get_running_loop().call_later(RECALL_AFTER_S, self._recall)

    def _recall(self) -> None:
        """Ask the later half of what waits on each slot back, as far as there are free ones for it."""
        self._timer = None
        idle = [] if self._holding_back() else list(self._fleet.with_room())
        free = sum(member.candidate.room for member in idle)
        for member in list(self._fleet.running_ahead):
            for waiting in member.waiting:
                able = self._fleet.able(waiting[0].job.ask)
                if free > 0 and any(other in able for other in idle):
                    free -= _ask_back(member, waiting[len(waiting) // 2 :])
        self.look()


def _ask_back(member: Member, waiting: list[Holding]) -> int:
    """How many were asked back, now or before."""
    for holding in waiting:
        if not holding.recalled and member.link is not None:
            holding.recalled = True
            member.link.send(protocol.Recall(holding.job.id, holding.lease))
    return len(waiting)


def is_plain(job: Job) -> bool:
    """Whether a run or call may wait on a slot behind another: for the first time, and see `_shares`."""
    return not job.attempt and _shares(job)


def _shares(job: Job) -> bool:
    """Whether others may share its slot: it needs neither a GPU nor an engine of its own, nor is it one of a
    few that may be under way."""
    settings = job.settings
    return job.kind in SENT_AHEAD and not (
        job.ask.gpus or settings.isolated or settings.max_concurrent is not None
    )


def are_alike(job: Job, other: Job) -> bool:
    """Whether two jobs are of the same function, code and size, so that one engine takes both."""
    return is_plain(job) and (
        (job.kind, job.entry, job.bundle, job.fingerprint, job.ask, job.settings)
        == (other.kind, other.entry, other.bundle, other.fingerprint, other.ask, other.settings)
    )
