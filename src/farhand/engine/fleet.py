"""The workers as this server sees them now: their links, what each holds, and when each was last heard.

In memory only. After a start it knows, from the store, who held what; until such a worker comes back its
member has no link. Renewals are dated by this process's monotonic clock and never stored.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from farhand_worker import protocol

from ..model import SERVICE, Ask, Job
from ..placement import Candidate, Kin, Reservation, refuse_ever
from ..resources import Amounts, Capacity, Lease, held_by, one_a_line, taken

AWAITED = "awaited"
ONLINE = "online"
LOST = "lost"
OFFLINE = "offline"

UNKNOWN = protocol.Inventory()
"""Of a worker that has told nothing of its machine."""


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
    """A lease a worker holds. ``started_at``, ``reported_at``: monotonic, by when it was recorded here.

    ``recalled``: it waits behind another, and was asked back.
    """

    job: Job
    lease: int
    started_at: float | None = None
    reported_at: float | None = None
    recalled: bool = False

    @property
    def strict(self) -> bool:
        """Whether the attempt ends rather than rides an outage out."""
        return self.job.settings.strict_lease


def _nobody(*_: Any) -> None:
    """Nobody waits for changes of this worker."""


_SEEN = frozenset({"labels", "parallel", "inventory", "state", "leaving", "drained_by", "link"})
"""What placement knows of a worker by itself: a change of it may change where every job could go."""


@dataclass(eq=False)
class Member:
    """One worker. ``heard_at``, ``closed_at``: monotonic seconds; ``promises``: jobs whose leases are being
    made, with what each will take; ``parting``: leases whose end is being recorded; ``reserved``: who has
    its next free amounts; ``skew_s``: how far its wall clock is ahead of ours, give or take the way of a
    message; ``behind``: the jobs of which it has not told everything yet, as its last heartbeat said;
    ``leaving``: a signal told it to end; ``drained_by``: who ordered that it takes nothing new; ``ends_at``:
    when its machine is taken away; ``away_at``: since when it is offline (seconds since the epoch);
    ``hosts``: whether it keeps services, which others reach by ``service_host``, or else by ``address``,
    where it dialled from, or through ``tunnels``, if it dials those. One that works in a ``checkout`` was
    asked for ``compared`` fingerprints; ``differs`` has its answers: the files that differ.
    """

    name: str
    labels: frozenset[str] = frozenset()
    parallel: int = 0
    inventory: protocol.Inventory = UNKNOWN
    instance: str = ""
    host: str = ""
    python: str = ""
    environment: str = ""
    checkout: str = ""
    git: str = ""
    ends_at: float | None = None
    differs: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    compared: frozenset[str] = frozenset()
    boot_id: str = ""
    service_host: str = ""
    address: str = ""
    hosts: bool = False
    tunnels: bool = False
    ahead: int = 0
    jti: str = ""
    state: str = AWAITED
    leaving: bool = False
    drained_by: str = ""
    link: Link | None = None
    heard_at: float | None = None
    closed_at: float | None = None
    away_at: float = 0.0
    behind: frozenset[str] = frozenset()
    skew_s: float | None = None
    promises: dict[str, Lease] = field(default_factory=dict[str, Lease])
    holdings: dict[int, Holding] = field(default_factory=dict[int, Holding])
    lines: dict[int, dict[int, Holding]] = field(default_factory=dict[int, dict[int, Holding]])
    parting: set[int] = field(default_factory=set[int])
    gate: asyncio.Lock = field(default_factory=asyncio.Lock)
    _reserved: Reservation | None = None
    _candidate: Candidate | None = None
    _changed: Callable[..., None] = _nobody

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if name in _SEEN:
            object.__setattr__(self, "_candidate", None)
            self._changed()

    @property
    def draining(self) -> bool:
        """Whether it is handed nothing new: a signal told it to end, or a person ordered that."""
        return self.leaving or self.drained_by != ""

    @property
    def busy(self) -> int:
        """Slots taken or promised."""
        return self.candidate.in_use.slots

    @property
    def calls_running(self) -> int:
        """Placed calls that take a slot, or were promised one."""
        return sum(1 for lease in self.leases if lease.depth and not lease.blocked)

    @property
    def capacity(self) -> Capacity:
        """What it lends."""
        known = self.inventory
        devices = None if known.devices is None else tuple(known.devices)
        return Capacity(self.parallel, known.cpus, known.gpus, known.ram_mb, devices)

    @property
    def leases(self) -> list[Lease]:
        """What it holds or was promised, as far as that counts."""
        held = (
            (number, lease_of(each.job))
            for number, line in self.lines.items()
            for each in _counting(line.values(), self.parting)
        )
        return [*one_a_line(held), *self.promises.values()]

    def left_in(self, line: int) -> list[Holding]:
        """Those who share a slot and whose end is not being recorded."""
        found = self.lines.get(line)
        return [] if found is None else [each for each in found.values() if each.lease not in self.parting]

    @property
    def waiting(self) -> list[list[Holding]]:
        """For each slot what waits behind the one that runs there."""
        left = (self.left_in(line) for line, held in self.lines.items() if len(held) > 1)
        return [waiting for held in left if (waiting := held[1:])]

    @property
    def waiting_leases(self) -> set[int]:
        """All that waits behind another."""
        return {holding.lease for line in self.waiting for holding in line}

    @property
    def candidate(self) -> Candidate:
        """This worker as placement sees it: without a session it takes nothing, whatever its state."""
        if self._candidate is None:
            reachable = self.link is not None or self.state == OFFLINE
            state = LOST if self.state == AWAITED or not reachable else self.state
            leases, capacity = self.leases, self.capacity
            self._candidate = Candidate(
                self.name,
                self.labels,
                capacity,
                taken(leases, capacity),
                state,
                self.draining,
                tuple(lease.depth for lease in leases if lease.blocked),
                self._reserved,
                self._kept(capacity),
            )
        return self._candidate

    def _kept(self, capacity: Capacity) -> tuple[tuple[str, Amounts], ...]:
        """The services that run here, with what each takes."""
        jobs = [each.job for each in self.holdings.values() if each.job.kind == SERVICE]
        return tuple((job.name, held_by(lease_of(job), capacity)) for job in jobs)

    @property
    def reserved(self) -> Reservation | None:
        """The job that its next free amounts are for."""
        return self._reserved

    def reserve(self, reservation: Reservation | None) -> None:
        """Keep what it has for a job, or for nobody any more."""
        self._reserved, self._candidate = reservation, None

    def promise(self, job: Job, fell_back: bool = False) -> None:
        """Count a job as taken while its lease is being made."""
        devices = () if fell_back else ("",) * (job.ask.gpus or 0)
        self.promises[job.id] = Lease(job.ask, devices, depth=job.depth)
        self._candidate = None

    def promise_to_go_on(self, job: Job) -> None:
        """Count the slot and cores that a blocked job is to have again."""
        self.promises[job.id] = Lease(Ask(cpus=job.ask.cpus), depth=job.depth)
        self._candidate = None

    def settle(self, job_id: str) -> None:
        """The lease was made, or was not."""
        self.promises.pop(job_id, None)
        self._candidate = None

    def hold(self, holding: Holding) -> None:
        """Count a lease."""
        self.holdings[holding.lease] = holding
        self.lines.setdefault(holding.job.line, {})[holding.lease] = holding
        self._candidate = None

    def part_with(self, lease: int) -> None:
        """The end of a lease is being recorded: what it takes is free for one that is recorded after it."""
        self.parting.add(lease)
        self._candidate = None

    def keep(self, lease: int) -> None:
        """The end of a lease was not recorded."""
        self.parting.discard(lease)
        self._candidate = None

    def drop(self, lease: int) -> None:
        """Count a lease no more."""
        holding = self.holdings.pop(lease, None)
        if holding is not None:
            line = self.lines[holding.job.line]
            del line[lease]
            if not line:
                del self.lines[holding.job.line]
        self.parting.discard(lease)
        self._candidate = None

    def watched(self, changed: Callable[[], None]) -> Member:
        """Have ``changed`` called when placement may decide otherwise because of what this worker is."""
        self._changed = changed
        return self


def _counting(line: Iterable[Holding], parting: set[int]) -> Iterator[Holding]:
    """Of those who share a slot the blocked ones and the first that is not: nobody looks at the rest."""
    for holding in line:
        if holding.lease not in parting:
            yield holding
            if not holding.job.blocked:
                return


def lease_of(job: Job) -> Lease:
    """What a held job counts as."""
    return Lease(job.ask, job.devices, job.blocked, job.depth)


class Fleet:
    """Every worker that the server remembers."""

    def __init__(self, times: protocol.Times) -> None:
        self.times = times
        self.began_at = 0.0
        """Since when workers that have not come back are waited for (monotonic seconds)."""
        self._members: dict[str, Member] = {}
        self._holders: dict[str, tuple[Member, Holding]] = {}
        self._runs_of: Counter[str] = Counter()
        self._able: dict[Ask, list[Member]] = {}
        self._blocked: set[Member] = set()
        self.running_ahead: set[Member] = set()
        """The workers on which something waits behind another."""

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def get(self, name: str) -> Member | None:
        """The member of that name, if there is one."""
        return self._members.get(name)

    def member(self, name: str) -> Member:
        """The member of that name, made if there is none."""
        known = self._members.get(name)
        if known is None:
            known = self._members[name] = Member(name).watched(self._able.clear)
            self._able.clear()
        return known

    def forget(self, name: str) -> None:
        """Have no member of that name any more."""
        self._members.pop(name, None)
        self._able.clear()

    def candidates(self) -> list[Candidate]:
        """The workers a job could be placed on, now or soon."""
        return [member.candidate for member in self._members.values() if member.state != OFFLINE]

    def able(self, ask: Ask) -> list[Member]:
        """The workers that could take a job that asks so, if they had room. Kept until a worker changes."""
        found = self._able.get(ask)
        if found is None:
            found = self._able[ask] = [
                member
                for member in self._members.values()
                if member.state != OFFLINE and refuse_ever(ask, member.candidate) is None
            ]
        return found

    def given_back(self) -> set[str]:
        """The workers with a free slot that a blocked run has given back and no call has taken since."""
        return {
            member.name
            for member in self._blocked
            if member.candidate.room > 0 and member.calls_running < len(member.candidate.blocked)
        }

    def unblocked(self) -> list[tuple[Member, Job]]:
        """The jobs that would go on and have no slot yet, those that began first at the beginning."""
        found = [
            (member, holding.job)
            for member in self._blocked
            for holding in member.holdings.values()
            if holding.job.blocked == "unblocked" and holding.job.id not in member.promises
        ]
        return sorted(found, key=lambda pair: (-pair[1].priority, pair[1].age_at, pair[1].id))

    def kin_of(self, job: Job) -> tuple[Kin, ...]:
        """The ancestors of a placed call that are live, the nearest first."""
        kin: list[Kin] = []
        parent = job.parent_job
        while parent is not None and (held := self._holders.get(parent)) is not None:
            member, above = held[0], held[1].job
            keeps = held_by(Lease(above.ask, above.devices, "blocked", above.depth), member.capacity)
            parent, blocked = above.parent_job, above.blocked == "blocked"
            kin.append(Kin(above.id, above.run, above.name, member.name, blocked, keeps, parent))
        return tuple(kin)

    def hold(self, member: Member, job: Job, lease: int) -> None:
        """Record that ``member`` holds ``lease`` on ``job``."""
        earlier = self._holders.get(job.id)
        if earlier is not None:
            self._forget(*earlier)
        if earlier is not None and earlier[1].lease == lease:
            holding = replace(earlier[1], job=job)
        else:
            since = None if job.started_at is None else time.monotonic()
            holding = Holding(job, lease, since, since)
        member.hold(holding)
        self._holders[job.id] = (member, holding)
        self._runs_of[job.flow] += job.kind == "run"
        if job.blocked:
            self._note_blocked(member)
        if job.behind is not None:
            self.running_ahead.add(member)

    def changed(self, job: Job) -> None:
        """A job that is held counts otherwise now: it is blocked, or goes on."""
        held = self._holders.get(job.id)
        if held is not None and held[1].lease == job.lease:
            if held[1].job.blocked and not job.blocked and held[1].reported_at is not None:
                held[1].reported_at = time.monotonic()  # its wait for the slot was no silence
            held[1].job = job
            held[0].hold(held[1])
            self._note_blocked(held[0])

    def _note_blocked(self, member: Member) -> None:
        if member.candidate.blocked:
            self._blocked.add(member)
        else:
            self._blocked.discard(member)

    def is_news(self, job_id: str, lease: int) -> bool:
        """Whether the end of a lease lets anybody go on: what it took was given away when it was reported.

        A limit of its flow counts until the end is recorded.
        """
        held = self._holders.get(job_id)
        if held is None or held[1].lease != lease or lease not in held[0].parting:
            return True
        return held[1].job.settings.max_concurrent is not None

    def release(self, job_id: str, lease: int) -> Member | None:
        """Forget a lease that ended; returns who held it."""
        held = self._holders.get(job_id)
        if held is None or held[1].lease != lease:
            return None
        del self._holders[job_id]
        self._forget(*held)
        return held[0]

    def _forget(self, member: Member, holding: Holding) -> None:
        member.drop(holding.lease)
        if holding.job.blocked:
            self._note_blocked(member)
        if holding.job.behind is not None and not member.waiting:
            self.running_ahead.discard(member)
        self._runs_of[holding.job.flow] -= holding.job.kind == "run"

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
        return self._runs_of[flow]

    def holder(self, job_id: str) -> tuple[Member, Holding] | None:
        """Who holds ``job_id`` now."""
        return self._holders.get(job_id)

    def expires_at(self, member: Member, holding: Holding | None) -> float:
        """When what a worker holds is surely over unless it is heard again (monotonic seconds)."""
        times = self.times
        if member.heard_at is not None:
            return member.heard_at + times.lease_s + times.margin_s
        strict = holding is not None and holding.strict
        return self.began_at + (times.lease_s + times.margin_s if strict else times.reattach_s)

    def send_to_holder(self, job_id: str, make: Callable[[int], Any]) -> None:
        """Send ``make(lease)`` to whoever holds the job, if it is connected; a reattach sends it again."""
        held = self._holders.get(job_id)
        if held is not None and held[0].link is not None:
            held[0].link.send(make(held[1].lease))
