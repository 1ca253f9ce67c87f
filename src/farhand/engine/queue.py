"""The queued jobs in memory, in the order they are due: priority, then age.

The store is the truth and every claim is decided there; this is an index of it. Jobs whose placement depends
on the same things wait in one lane, and only the head of a lane is ever placed: the cost of a dispatch grows
with the number of different asks, not with the number of jobs that wait.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from ..model import Ask, Job, Run
from ..placement import AFFINITY_S, Kin, Placement, Refusal
from ..resources import Amounts
from .steady import Steady

Order = tuple[int, float, int, str]
"""What the queue goes by: priority, then age, then the id; a job's calls end theirs with a number."""

_Entry = tuple[int, float, int, str, int, Job]


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a job waits. ``code``: delayed (``until`` says how long), busy, no_worker, limit, or in_line.

    ``refusals`` are the workers that were considered, each with the reason against it, and those that are
    offline and could take it.
    """

    code: str
    message: str
    refusals: tuple[Refusal, ...] = ()
    until: float | None = None


class Lane(NamedTuple):
    """What the jobs of a lane have in common: all that their placement depends on.

    ``module`` is that of their code; ``flow`` is set where its runs share a limit; ``alone`` is the one job
    of a lane of its own; ``earlier`` is the worker they were on, which they prefer for a while; ``kin`` are
    the workers on which ancestors are live, with the GPUs and memory kept there; ``timeout_s`` must fit in
    the time that a machine has left.
    """

    ask: Ask
    fingerprint: str = ""
    module: str = ""
    flow: str = ""
    alone: str = ""
    depth: int = 0
    earlier: str = ""
    kin: frozenset[tuple[str, Amounts]] = frozenset()
    timeout_s: float | None = None


Reason = Callable[[], Placement]
"""Finds out, when it is asked, why the head of a lane waits."""


def order_of(job: Job) -> Order:
    """The place of a job among all that are queued."""
    return (-job.priority, job.age_at, len(job.id), job.id)


def limit_of(job: Job) -> int | None:
    """How many runs of the job's flow may be under way at once; a call or a hook is no run."""
    return job.settings.max_concurrent if job.kind == "run" else None


def moment(at: float) -> str:
    """A moment in words."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


class Queue:
    """Queued jobs by lane. A job is in it at most once; adding it again replaces it.

    ``kin_of`` tells the live ancestors of a job. All moments are those of one clock, which is ``steady``.
    """

    def __init__(self, kin_of: Callable[[Job], tuple[Kin, ...]] = lambda _: ()) -> None:
        self.steady = Steady()
        self._kin_of = kin_of
        self._lanes: dict[Lane, list[_Entry]] = {}
        self._delayed: list[tuple[float, str]] = []
        self._held_to_earlier: list[tuple[float, str]] = []
        self._jobs: dict[str, Job] = {}
        self._places: dict[str, tuple[Lane, int]] = {}
        self._of_run: dict[str, str] = {}
        self._calls: dict[str, dict[str, None]] = {}
        self._below: dict[str, dict[str, None]] = {}
        self._ancestors: dict[str, tuple[str, ...]] = {}
        self._reasons: dict[Lane, Reason | str] = {}
        self._found: dict[Lane, Placement] = {}
        self._entries = itertools.count()
        self._ripe_at = 0.0
        self._apart: set[str] = set()
        self.counted = frozenset[Lane]()
        """The lanes that no worker serves: how many jobs wait in them says how many machines are wanted."""

    def __len__(self) -> int:
        return len(self._jobs)

    def add_all(self, jobs: Iterable[Job], now: float) -> None:
        """Queue several; those that one job has called have the same ancestors, who are looked up once."""
        known = dict[str | None, tuple[Kin, ...]]()
        for job in jobs:
            kin = known.get(job.parent_job)
            if kin is None:
                kin = known[job.parent_job] = self._kin(job)
            self.add(job, now, kin)

    def add(self, job: Job, now: float, kin: tuple[Kin, ...] | None = None) -> None:
        """Queue ``job``; it is due at its ``not_before``. ``kin``: its live ancestors, if known."""
        self._jobs[job.id] = job
        self._places.pop(job.id, None)
        if job.kind == "run":
            self._of_run[job.run] = job.id
        else:
            self._calls.setdefault(job.run, {})[job.id] = None
        if job.not_before > now:
            heapq.heappush(self._delayed, (job.not_before, job.id))
        else:
            self._enter(job, now, self._kin(job) if kin is None else kin)

    def set_apart(self, job_id: str) -> None:
        """Let a job that is not in the queue wait in a lane of its own: what holds it up holds up none."""
        self._apart.add(job_id)

    def rejoin(self, job_id: str) -> None:
        """The job is over."""
        self._apart.discard(job_id)

    def remove(self, job_id: str) -> None:
        """Forget a job that left the queue; what its lane still holds of it is passed over later."""
        self._forget(job_id)

    def ripen(self, now: float) -> None:
        """Move the jobs whose delay is over to their lanes."""
        self._ripe_at = max(self._ripe_at, now)
        while self._delayed and self._delayed[0][0] <= now:
            _, job_id = heapq.heappop(self._delayed)
            job = self._jobs.get(job_id)
            if job is not None and job.not_before <= now:
                self._enter(job, now, self._kin(job))
        while self._held_to_earlier and self._held_to_earlier[0][0] <= now:
            self._enter_again(heapq.heappop(self._held_to_earlier)[1], now)

    def next_due_at(self) -> float | None:
        """When the next delayed job is due, or no longer held to the worker it was on."""
        return min((due[0][0] for due in (self._delayed, self._held_to_earlier) if due), default=None)

    def relane(self, ancestor: str, now: float) -> None:
        """A job came to a worker or left one: the calls below it wait in other lanes now."""
        for job_id in list(self._below.get(ancestor, ())):
            self._enter_again(job_id, now)

    def heads(self) -> list[Job]:
        """The first job of every lane, most urgent first."""
        heads = [lane[0] for key in list(self._lanes) if (lane := self._settled(key))]
        return [entry[-1] for entry in sorted(heads, key=lambda entry: entry[:4])]

    def lanes(self) -> list[tuple[Order, Lane]]:
        """Every lane by the place of its head, as a heap."""
        found = [(lane[0][:4], key) for key in list(self._lanes) if (lane := self._settled(key))]
        heapq.heapify(found)
        return found

    @property
    def waits(self) -> bool:
        """Whether there is any lane: else nothing that is due is queued."""
        return bool(self._lanes)

    def head(self, lane: Lane) -> Job | None:
        """The first job of a lane."""
        entries = self._settled(lane) if lane in self._lanes else None
        return entries[0][-1] if entries else None

    def size_of(self, lane: Lane, at_most: int) -> int:
        """How many jobs wait in a lane; no more than ``at_most`` are counted."""
        entries = itertools.islice(self._lanes.get(lane, ()), at_most)
        return sum(1 for entry in entries if self._places.get(entry[3]) == (lane, entry[4]))

    def about(self, lane: Lane) -> int:
        """About how many jobs wait in a lane: some that have left it since may be counted."""
        return len(self._lanes.get(lane, ()))

    def is_news(self, job: Job) -> bool:
        """Whether it changes anything that a job is queued: not behind another that waits for a worker."""
        lane = self.lane_of(job)
        head = None if lane is None else self.head(lane)
        return head is None or head.id == job.id or lane in self.counted

    def lane_of(self, job: Job) -> Lane | None:
        """The lane in which a job waits; None for one that is not due or not queued."""
        place = self._places.get(job.id)
        return None if place is None else place[0]

    def knows(self, job_id: str) -> bool:
        """Whether the job is queued."""
        return job_id in self._jobs

    def take(self, job: Job) -> None:
        """Remove a job, to hand it over."""
        lane = self.lane_of(job)
        self._forget(job.id)
        if lane is not None:
            self._settled(lane)

    def explain(self, lane: Lane, reason: Reason | str) -> None:
        """Remember why the head of a lane waits: a limit in words, or how to find it out when it is asked."""
        self._reasons[lane] = reason
        self._found.pop(lane, None)

    def reason_of_run(self, run_id: str) -> str:
        """Why a run's own job waits, in one sentence; empty when it is not queued or was not looked at."""
        return self.reason_of_job(self._of_run.get(run_id, ""))

    def reason_of_job(self, job_id: str) -> str:
        """Why a job waits, in one sentence; empty when it is not queued or was not looked at."""
        waiting = self.waiting(job_id)
        return "" if waiting is None else waiting.message

    def waiting(self, job_id: str) -> Waiting | None:
        """Why a job waits; None when it is not queued."""
        job = self._jobs.get(job_id)
        if job is None:
            return None
        if job.not_before > self._ripe_at:
            until = self.steady.shown(job.not_before)
            return Waiting("delayed", f"waits until {moment(until)}", until=until)
        lane = self.lane_of(job)
        reason = None if lane is None else self._reasons.get(lane)
        if lane is None or reason is None:
            return Waiting("in_line", "")
        if isinstance(reason, str):
            return Waiting("limit", reason)
        placement = self._found.get(lane)
        if placement is None:
            placement = self._found[lane] = reason()
        code = "no_worker" if all(refusal.for_good for refusal in placement.refusals) else "busy"
        return Waiting(code, placement.message, placement.refusals + placement.away)

    def waiting_for(self, run: Run) -> Waiting | None:
        """Why a run waits in the queue: its own job, or the placed call that a called flow is; else None."""
        if run.root is None:
            return self.waiting(self._of_run.get(run.id, ""))
        placed = (job.id for job in self.waiting_calls(run.root) if job.key == run.key)
        return self.waiting(next(placed, ""))

    def waiting_calls(self, run_id: str) -> list[Job]:
        """The placed calls of a run that are queued, in the order they were added."""
        return [self._jobs[job_id] for job_id in self._calls.get(run_id, ())]

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs.values())

    def _forget(self, job_id: str) -> None:
        job = self._jobs.pop(job_id, None)
        self._places.pop(job_id, None)
        self._leave_family(job_id)
        if job is None:
            return
        if job.kind == "run":
            self._of_run.pop(job.run, None)
        elif (calls := self._calls.get(job.run)) is not None:
            calls.pop(job_id, None)
            if not calls:
                del self._calls[job.run]

    def _join_family(self, job: Job, kin: tuple[Kin, ...]) -> None:
        """Note on whose coming and going the lane of a call depends."""
        self._leave_family(job.id)
        if job.parent_job is None:
            return
        above = kin[-1].parent if kin else job.parent_job
        ancestors = (*(each.job for each in kin), *(() if above is None else (above,)))
        self._ancestors[job.id] = ancestors
        for ancestor in ancestors:
            self._below.setdefault(ancestor, {})[job.id] = None

    def _leave_family(self, job_id: str) -> None:
        for ancestor in self._ancestors.pop(job_id, ()):
            below = self._below[ancestor]
            below.pop(job_id, None)
            if not below:
                del self._below[ancestor]

    def lane_for(self, job: Job, now: float) -> Lane:
        """The lane in which a job would wait."""
        return self._lane(job, self._kin(job), now)

    def _kin(self, job: Job) -> tuple[Kin, ...]:
        return self._kin_of(job) if job.parent_job is not None else ()

    def _lane(self, job: Job, kin: tuple[Kin, ...], now: float) -> Lane:
        return Lane(
            job.ask,
            job.fingerprint,
            job.entry.partition(":")[0],
            "" if limit_of(job) is None else job.flow,
            job.id if job.id in self._apart else "",
            job.depth,
            job.last_worker or "" if earlier_until(job) > now else "",
            frozenset((each.worker, each.keeps) for each in kin),
            job.settings.timeout_s,
        )

    def _enter(self, job: Job, now: float, kin: tuple[Kin, ...]) -> None:
        self._join_family(job, kin)
        lane = self._lane(job, kin, now)
        if lane.earlier:
            heapq.heappush(self._held_to_earlier, (earlier_until(job), job.id))
        # The number keeps two records of one job from being compared: what was replaced stays for a while.
        number = next(self._entries)
        self._places[job.id] = lane, number
        heapq.heappush(self._lanes.setdefault(lane, []), (*order_of(job), number, job))

    def _enter_again(self, job_id: str, now: float) -> None:
        """A job that is due changes its lane; its entry in the old one is passed over later."""
        if job_id in self._places:
            job = self._jobs[job_id]
            self._enter(job, now, self._kin(job))

    def _settled(self, key: Lane) -> list[_Entry]:
        """The lane, with a live head: entries of jobs that left or were replaced are dropped."""
        lane = self._lanes.get(key, [])
        while lane and self._places.get(lane[0][3]) != (key, lane[0][4]):
            heapq.heappop(lane)
        if not lane:
            self._lanes.pop(key, None)
            self._reasons.pop(key, None)
            self._found.pop(key, None)
        return lane


def earlier_until(job: Job) -> float:
    """Until when a job prefers the worker it was on; 0 for one that was on none."""
    return max(job.queued_at, job.not_before) + AFFINITY_S if job.last_worker else 0.0
