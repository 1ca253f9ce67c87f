"""Why a run is where it is: what it waits for and who was considered, or how its attempts ended."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ..lifecycle import RUN, is_terminal
from ..model import Attempt, Job, Run
from ..placement import Refusal
from .fleet import Fleet
from .queue import Queue, Waiting
from .runs import Runs


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """The placed calls of one name that wait for the same reason; ``key`` is that of the first.

    They are queued, or (``behind``) handed to a worker where each waits on a slot for the one before to end.

    ``count`` is how many they are.
    """

    name: str
    key: str
    count: int
    code: str
    message: str
    until: float | None
    considered: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True)
class Why:
    """The answer for one run.

    ``code`` is machine-readable: what a queued run waits for (delayed, limit, busy, no_worker, in_line), else
    the reason of its state. ``holders`` are the runs under way that ``max_concurrent`` counts, where that is
    what it waits for. ``considered`` are the workers that could not take it, each with the reason
    against it; ``until`` is when a delay ends. ``attempts`` is the chain of what has happened so far.
    """

    run: str
    state: str
    code: str
    message: str
    until: float | None
    considered: tuple[Refusal, ...]
    calls: list[WaitingCall]
    attempts: list[Attempt]
    holders: list[str]


_UNDER_WAY = ("starting", "running", "cancelling")
HOLDERS_MAX = 100


class Explanations:
    """Answers "why" from what the queue remembers and the store has recorded."""

    def __init__(self, runs: Runs, queue: Queue, fleet: Fleet | None = None) -> None:
        self._fleet = fleet
        self._runs = runs
        self._queue = queue

    async def why(self, id: str) -> Why:
        """Why the run is in its state. Raises `NotFound`."""
        run = await self._runs.get(id)
        attempts = await self._runs.attempts(run.id)
        waiting = self._queue.waiting_for(run) if run.state == "queued" else None
        calls = self._calls(run.id)
        code, message = _queued(run, waiting) if waiting is not None else (run.reason, _told(run))
        return Why(
            run=run.id,
            state=run.state,
            code=code,
            message=message,
            until=None if waiting is None else waiting.until,
            considered=() if waiting is None else waiting.refusals,
            calls=calls,
            attempts=attempts,
            holders=await self._holders(run.flow) if code == "limit" else [],
        )

    async def _holders(self, flow: str) -> list[str]:
        """The runs of a flow that are under way, those that began first at the beginning."""
        found: list[str] = []
        for state in _UNDER_WAY:
            page = await self._runs.page(HOLDERS_MAX, flow=flow, state=state)
            found += [run.id for run in page.items if run.root is None]
        return sorted(found)

    def _calls(self, run_id: str) -> list[WaitingCall]:
        """What its calls wait for, each reason once: a map may have thousands that wait for the same."""
        first: dict[tuple[str, str, str, float | None], tuple[Job, Waiting]] = {}
        count: Counter[tuple[str, str, str, float | None]] = Counter()
        for job in self._queue.waiting_calls(run_id):
            waiting = self._queue.waiting(job.id) or Waiting("in_line", "")
            key = (job.name, waiting.code, waiting.message, waiting.until)
            first.setdefault(key, (job, waiting))
            count[key] += 1
        queued = [_call(*of, count[key]) for key, of in first.items()]
        return [*queued, *map(_behind, self._sent_ahead(run_id))]

    def _sent_ahead(self, run_id: str) -> list[list[Job]]:
        """Its calls that wait on a slot behind another, by name and worker."""
        alike: dict[tuple[str, str], list[Job]] = {}
        members = () if self._fleet is None else self._fleet.running_ahead
        for member in sorted(members, key=lambda member: member.name):
            for holding in (each for line in member.waiting for each in line):
                if holding.job.run == run_id:
                    alike.setdefault((holding.job.name, member.name), []).append(holding.job)
        return list(alike.values())


def _call(first: Job, waiting: Waiting, count: int) -> WaitingCall:
    message = waiting.message or "is next in line"
    return WaitingCall(first.name, first.key, count, waiting.code, message, waiting.until, waiting.refusals)


def _behind(jobs: list[Job]) -> WaitingCall:
    first, count = jobs[0], len(jobs)
    waits = "is handed to {} and waits" if count == 1 else "are handed to {} and wait"
    message = f"{waits.format(first.worker)} there on a slot behind another call"
    return WaitingCall(first.name, first.key, count, "behind", message, None, ())


def _queued(run: Run, waiting: Waiting) -> tuple[str, str]:
    """What a queued run waits for, after what led it back to the queue where something did."""
    now = waiting.message or "is next in line"
    before = run.message if run.message != waiting.message else ""
    return waiting.code, f"{before}; {now}" if before and now not in before else before or now


def _told(run: Run) -> str:
    if run.message:
        return run.message
    says_more = is_terminal(RUN, run.state) and run.reason not in ("", run.state)
    return run.reason.replace("_", " ") if says_more else ""
