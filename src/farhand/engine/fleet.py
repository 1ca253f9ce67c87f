"""The workers as this server sees them now: their links, what each holds, and when each was last heard.

In memory only. After a start it knows, from the store, who held what; until such a worker comes back its
member has no link. Renewals are dated by this process's monotonic clock and never stored.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from farhand_worker import protocol

from ..model import Job
from ..placement import Candidate

AWAITED = "awaited"
ONLINE = "online"
LOST = "lost"
OFFLINE = "offline"


class Link(Protocol):
    """A worker's session, as far as the services need it. Sending never blocks and never fails."""

    def send(self, message: Any) -> None:
        """Send ``message`` after all sent before it; nothing happens once the session is closed."""
        ...

    def expect(self, job: str, lease: int) -> None:
        """An assign was sent: close the session unless it is accepted in time."""
        ...

    def close(self, reason: str) -> None:
        """End the session; frames that arrive from now on are dropped unread."""
        ...


@dataclass(slots=True)
class Holding:
    """A lease a worker holds. ``started_at``, ``reported_at``: monotonic, by when it was recorded here."""

    job: Job
    lease: int
    started_at: float | None = None
    reported_at: float | None = None

    @property
    def strict(self) -> bool:
        """Whether the attempt ends rather than rides an outage out."""
        return self.job.settings.strict_lease


@dataclass(slots=True)
class Member:
    """One worker. ``heard_at``, ``closed_at``: monotonic seconds; ``promised``: leases being made;
    ``skew_s``: how far its wall clock is ahead of ours, give or take the way of a message; ``behind``: the
    jobs of which it has not told everything yet, as its last heartbeat said; ``leaving``: a signal told it to
    end; ``drained_by``: who ordered that it takes nothing new.
    """

    name: str
    labels: frozenset[str] = frozenset()
    parallel: int = 0
    instance: str = ""
    host: str = ""
    python: str = ""
    boot_id: str = ""
    jti: str = ""
    state: str = AWAITED
    leaving: bool = False
    drained_by: str = ""
    link: Link | None = None
    heard_at: float | None = None
    closed_at: float | None = None
    behind: frozenset[str] = frozenset()
    promised: int = 0
    skew_s: float | None = None
    holdings: dict[int, Holding] = field(default_factory=dict)
    gate: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def draining(self) -> bool:
        """Whether it is handed nothing new: a signal told it to end, or a person ordered that."""
        return self.leaving or self.drained_by != ""

    @property
    def busy(self) -> int:
        """Slots taken or promised."""
        return len(self.holdings) + self.promised

    def as_candidate(self) -> Candidate:
        """This worker as placement sees it: without a session it takes nothing, whatever its state."""
        reachable = self.link is not None or self.state == OFFLINE
        state = LOST if self.state == AWAITED or not reachable else self.state
        return Candidate(self.name, self.labels, self.parallel, self.busy, state, self.draining)


class Fleet:
    """Every worker that is attached, or holds a job, or was seen since the start."""

    def __init__(self, times: protocol.Times) -> None:
        self.times = times
        self._members: dict[str, Member] = {}
        self._holders: dict[str, tuple[Member, Holding]] = {}

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def get(self, name: str) -> Member | None:
        """The member of that name, if there is one."""
        return self._members.get(name)

    def member(self, name: str) -> Member:
        """The member of that name, made if there is none."""
        return self._members.setdefault(name, Member(name))

    def forget(self, name: str) -> None:
        """Have no member of that name any more."""
        self._members.pop(name, None)

    def candidates(self) -> list[Candidate]:
        """The workers a job could be placed on, now or soon."""
        return [member.as_candidate() for member in self._members.values() if member.state != OFFLINE]

    def hold(self, member: Member, job: Job, lease: int) -> None:
        """Record that ``member`` holds ``lease`` on ``job``."""
        earlier = self._holders.get(job.id)
        if earlier is not None:
            earlier[0].holdings.pop(earlier[1].lease, None)
        if earlier is not None and earlier[1].lease == lease:
            holding = replace(earlier[1], job=job)
        else:
            since = None if job.started_at is None else time.monotonic()
            holding = Holding(job, lease, since, since)
        member.holdings[lease] = holding
        self._holders[job.id] = (member, holding)

    def release(self, job_id: str, lease: int) -> Member | None:
        """Forget a lease that ended; returns who held it."""
        held = self._holders.get(job_id)
        if held is None or held[1].lease != lease:
            return None
        del self._holders[job_id]
        held[0].holdings.pop(lease, None)
        return held[0]

    def reported(self, job_id: str, lease: int, now: float, started: bool) -> bool:
        """A report was recorded at ``now`` (monotonic); whether anything waits for this job's reports."""
        held = self._holders.get(job_id)
        if held is None or held[1].lease != lease:
            return False
        holding = held[1]
        if holding.job.settings.timeout_s is None and holding.job.settings.silence_timeout_s is None:
            return False
        holding.reported_at = now
        if started:
            holding.started_at = now
        return started

    def running_of(self, flow: str) -> int:
        """How many runs of a flow are handed over."""
        return sum(
            1
            for _, holding in self._holders.values()
            if (holding.job.flow, holding.job.kind) == (flow, "run")
        )

    def holder(self, job_id: str) -> tuple[Member, Holding] | None:
        """Who holds ``job_id`` now."""
        return self._holders.get(job_id)

    def send_to_holder(self, job_id: str, make: Callable[[int], Any]) -> None:
        """Send ``make(lease)`` to whoever holds the job, if it is connected; a reattach sends it again."""
        held = self._holders.get(job_id)
        if held is not None and held[0].link is not None:
            held[0].link.send(make(held[1].lease))
