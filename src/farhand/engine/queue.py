"""The queued jobs in memory, in the order they are due: priority, then age.

The store is the truth and every claim is decided there; this is an index of it. Jobs that ask for the
same thing and are of the same code wait in one lane (runs of a flow with a limit of its own in one of
theirs), and only the head of a lane is ever placed: the cost of a dispatch grows with the number of different
asks, not with the number of jobs that wait.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from ..model import Ask, Job, Run
from ..placement import Placement, Refusal

_Entry = tuple[int, float, str, int, Job]


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a job waits. ``code``: delayed (``until`` says how long), busy, no_worker, limit, or in_line.

    ``refusals`` are the workers that were considered, each with the reason against it.
    """

    code: str
    message: str
    refusals: tuple[Refusal, ...] = ()
    until: float | None = None


class Lane(NamedTuple):
    """What the jobs of a lane have in common: what they ask for, their code, whose limit they share.

    ``alone`` is the one job of a lane of its own.
    """

    ask: Ask
    fingerprint: str
    module: str
    limited: str
    alone: str


def limit_of(job: Job) -> int | None:
    """How many runs of the job's flow may be under way at once; a call or a hook is no run."""
    return job.settings.max_concurrent if job.kind == "run" else None


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


class Queue:
    """Queued jobs by ask. A job is in it at most once; adding it again replaces it."""

    def __init__(self) -> None:
        self._lanes: dict[Lane, list[_Entry]] = {}
        self._delayed: list[tuple[float, str]] = []
        self._jobs: dict[str, Job] = {}
        self._of_run: dict[str, str] = {}
        self._calls: dict[str, dict[str, None]] = {}
        self._reasons: dict[Lane, Placement | str] = {}
        self._entries = itertools.count()
        self._ripe_at = 0.0
        self._apart: set[str] = set()

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job: Job, now: float) -> None:
        """Queue ``job``; it is due at its ``not_before`` (epoch seconds)."""
        self._jobs[job.id] = job
        if job.kind == "run":
            self._of_run[job.run] = job.id
        else:
            self._calls.setdefault(job.run, {})[job.id] = None
        if job.not_before > now:
            heapq.heappush(self._delayed, (job.not_before, job.id))
        else:
            self._enter(job)

    def lane_of(self, job: Job) -> Lane:
        """The lane in which a job waits."""
        limited = "" if limit_of(job) is None else job.flow
        alone = job.id if job.id in self._apart else ""
        return Lane(job.ask, job.fingerprint, job.entry.partition(":")[0], limited, alone)

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
                self._enter(job)

    def next_due_at(self) -> float | None:
        """When the next delayed job is due (epoch seconds)."""
        return self._delayed[0][0] if self._delayed else None

    def heads(self) -> list[Job]:
        """The first job of every lane, most urgent first."""
        heads = [(lane[0], ask) for ask in list(self._lanes) if (lane := self._settled(ask))]
        return [entry[-1] for entry, _ in sorted(heads, key=lambda head: head[0][:3])]

    def take(self, job: Job) -> None:
        """Remove the head of a lane, to hand it over."""
        lane = self._settled(self.lane_of(job))
        if lane and lane[0][-1] is job:
            heapq.heappop(lane)
        self._forget(job.id)

    def explain(self, lane: Lane, reason: Placement | str) -> None:
        """Remember why the head of a lane waits: the workers that were considered, or a limit in words."""
        self._reasons[lane] = reason

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
            return Waiting("delayed", f"waits until {_moment(job.not_before)}", until=job.not_before)
        placement = self._reasons.get(self.lane_of(job))
        if placement is None:
            return Waiting("in_line", "")
        if isinstance(placement, str):
            return Waiting("limit", placement)
        code = "no_worker" if all(refusal.for_good for refusal in placement.refusals) else "busy"
        return Waiting(code, placement.message, placement.refusals)

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
        if job is None:
            return
        if job.kind == "run":
            self._of_run.pop(job.run, None)
        elif (calls := self._calls.get(job.run)) is not None:
            calls.pop(job_id, None)
            if not calls:
                del self._calls[job.run]

    def _enter(self, job: Job) -> None:
        lane = self._lanes.setdefault(self.lane_of(job), [])
        # The count keeps two records of one job from being compared: what was replaced stays for a while.
        heapq.heappush(lane, (-job.priority, job.age_at, job.id, next(self._entries), job))

    def _settled(self, lane_key: Lane) -> list[_Entry]:
        """The lane, with a live head: entries of jobs that left or were replaced are dropped."""
        lane = self._lanes[lane_key]
        while lane and self._jobs.get(lane[0][-1].id) is not lane[0][-1]:
            heapq.heappop(lane)
        if not lane:
            del self._lanes[lane_key]
            self._reasons.pop(lane_key, None)
        return lane
