"""What is free on each worker, which job holds the rest, and what the queued jobs wait for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..placement import asked
from ..resources import NAMES, NOTHING, Amounts, Capacity, held_by
from .fleet import Fleet
from .machines import Provisions
from .member import OFFLINE, Holding, Member, lease_of
from .queue import Queue, order_of

WAITING_MAX = 200
"""So many queued jobs are listed, those that come first."""


@dataclass(frozen=True, slots=True)
class HeldAmounts:
    """A job on a worker, and what it takes now. ``blocked``: whether it waits for placed calls alone;
    ``behind``: whether it waits on a slot for the one before it to end, and takes nothing yet."""

    job: str
    run: str
    kind: str
    name: str
    takes: Amounts
    devices: tuple[str, ...]
    blocked: str
    behind: bool = False


@dataclass(frozen=True, slots=True)
class WorkerUsage:
    """A worker's amounts; ``free`` has null for what it does not tell.

    ``kept_for`` is the job that it keeps room for; ``service_host`` the name by which others reach what it
    serves: the address it came from, where it has told no other.
    """

    name: str
    state: str
    draining: bool
    has: Capacity
    in_use: Amounts
    free: dict[str, int | None]
    held: list[HeldAmounts]
    kept_for: str | None
    service_host: str = ""


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A queued job: what it asks for, and why it waits."""

    job: str
    run: str
    kind: str
    name: str
    asks: str
    code: str
    message: str
    since: float


@dataclass(frozen=True, slots=True)
class Usage:
    """Every attached worker by name, and the first of the ``queued`` jobs.

    ``provisions`` has the provisioners, with what last went wrong, and the machines they were asked for that
    have not ended.
    """

    workers: list[WorkerUsage]
    waiting: list[WaitingJob]
    queued: int
    provisions: Provisions


class Resources:
    """Answers from memory, as the dispatcher sees it."""

    def __init__(
        self, fleet: Fleet, queue: Queue, outstanding: Callable[[], Provisions] = Provisions
    ) -> None:
        self._outstanding = outstanding
        self._fleet = fleet
        self._queue = queue

    def usage(self) -> Usage:
        """Everything, as it is now."""
        members = sorted((m for m in self._fleet if m.state != OFFLINE), key=lambda member: member.name)
        first = sorted(self._queue, key=order_of)[:WAITING_MAX]
        waiting = [
            WaitingJob(
                job.id, job.run, job.kind, job.name or job.flow, asked(job.ask),
                why.code, why.message, max(job.queued_at, job.not_before),
            )
            for job in first
            if (why := self._queue.waiting(job.id)) is not None
        ]  # fmt: skip
        workers = [_of(member) for member in members]
        return Usage(workers, waiting, len(self._queue), self._outstanding())


def _of(member: Member) -> WorkerUsage:
    candidate, capacity = member.candidate, member.capacity
    free = {
        name: None if (total := getattr(capacity, name)) is None else total - getattr(candidate.in_use, name)
        for name in NAMES
    }
    waiting = member.waiting_leases
    held = [_held(each, capacity, each.lease in waiting) for each in member.holdings.values()]
    kept_for = None if member.reserved is None else member.reserved.job
    return WorkerUsage(
        member.name, candidate.state, member.draining, capacity, candidate.in_use, free, held, kept_for,
        member.service_host or member.address,
    )  # fmt: skip


def _held(holding: Holding, capacity: Capacity, behind: bool) -> HeldAmounts:
    job = holding.job
    takes = NOTHING if behind else held_by(lease_of(job), capacity)
    return HeldAmounts(
        job.id, job.run, job.kind, job.name or job.flow, takes, job.devices, job.blocked, behind
    )
