"""One worker as this server sees it now: its link, what it holds, and when it was last heard."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from farhand_worker import protocol

from ..model import SERVICE, Ask, Job
from ..placement import Candidate, Kin, Reservation
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

    ``began_at``: when user code began, by its worker's clock. ``recalled``: it waits behind another, and was
    asked back.
    """

    job: Job
    lease: int
    began_at: float | None = None
    started_at: float | None = None
    reported_at: float | None = None
    recalled: bool = False
    _kin: tuple[Job, Capacity, Kin] | None = None

    def kin_on(self, member: Member) -> Kin:
        """The job as those below it see it, on its worker, with what it keeps there while it is blocked.

        Kept until the job or what its worker lends is another: each call that it asks for has to know.
        """
        known, above, capacity = self._kin, self.job, member.capacity
        if known is not None and known[0] is above and known[1] is capacity:
            return known[2]
        keeps = held_by(Lease(above.ask, above.devices, "blocked", above.depth), capacity)
        blocked = above.blocked == "blocked"
        kin = Kin(above.id, above.run, above.name, member.name, blocked, keeps, above.parent_job)
        self._kin = above, capacity, kin
        return kin

    @property
    def strict(self) -> bool:
        """Whether the attempt ends rather than rides an outage out."""
        return self.job.settings.strict_lease


def _nobody(*_: Any) -> None:
    """Nobody waits for changes of this worker."""


_SEEN = frozenset({"labels", "parallel", "inventory", "state", "leaving", "drained_by", "trouble", "link"})
"""What placement knows of a worker by itself: a change of it may change where every job could go."""


@dataclass(eq=False)
class Member:
    """One worker. ``heard_at``, ``closed_at``: monotonic seconds; ``promises``: jobs whose leases are being
    made, with what each will take; ``joining``: how many leases are being made of those who will share a
    slot, by the lease that has it; ``parting``: leases whose end is being recorded; ``reserved``: who has its
    next free amounts; ``skew_s``: how far its wall clock is ahead of ours, give or take the way of a
    message; ``behind``: the jobs of which it has not told everything yet, as its last heartbeat said;
    ``leaving``: a signal told it to end; ``drained_by``: who ordered that it takes nothing new;
    ``trouble``: why it can take nothing, as it says itself; ``ends_at``: when its machine is taken away;
    ``away_at``: since when it is offline (seconds since the epoch);
    ``hosts``: whether it keeps services, which others reach by ``service_host``, or else by ``address``,
    where it dialled from, or through ``tunnels``, if it dials those; ``token_until``, ``token_revoked``: what
    became of the token it has. One that works in a ``checkout`` was
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
    token_until: float | None = None
    token_revoked: bool = False
    state: str = AWAITED
    leaving: bool = False
    drained_by: str = ""
    trouble: str = ""
    link: Link | None = None
    heard_at: float | None = None
    closed_at: float | None = None
    away_at: float = 0.0
    behind: frozenset[str] = frozenset()
    skew_s: float | None = None
    promises: dict[str, Lease] = field(default_factory=dict[str, Lease])
    joining: Counter[int] = field(default_factory=Counter[int])
    holdings: dict[int, Holding] = field(default_factory=dict[int, Holding])
    lines: dict[int, dict[int, Holding]] = field(default_factory=dict[int, dict[int, Holding]])
    parting: set[int] = field(default_factory=set[int])
    gate: asyncio.Lock = field(default_factory=asyncio.Lock)
    _reserved: Reservation | None = None
    _candidate: Candidate | None = None
    _capacity: Capacity | None = None
    _changed: Callable[..., None] = _nobody
    _stirred: Callable[..., object] = _nobody

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if name in _SEEN:
            object.__setattr__(self, "_capacity", None)
            self._stir()
            self._changed()

    def _stir(self) -> None:
        """What is free here may be otherwise now."""
        object.__setattr__(self, "_candidate", None)
        self._stirred(self)

    @property
    def draining(self) -> bool:
        """Whether it is handed nothing new: a signal told it to end, a person ordered that, or it can take
        nothing."""
        return self.leaving or self.drained_by != "" or self.trouble != ""

    def barred(self, now: float) -> str:
        """Why one that is offline cannot come back as it is, in words; empty when it can.

        An expired token turns away new instances alone. A machine that was asked for for a while is not
        expected back.
        """
        if self.state != OFFLINE or self.ends_at is not None:
            return ""
        if self.token_revoked:
            return "its token has been revoked: it comes back with a new one only"
        if self.token_until is not None and self.token_until <= now:
            return "its token has expired: started again, it needs a new one"
        return ""

    @property
    def attached(self) -> bool:
        """Whether it has a session, and is heard of."""
        return self.state == ONLINE and self.link is not None

    @property
    def takes_work(self) -> bool:
        """Whether it is there and takes what is new."""
        return self.attached and not self.draining

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
        if self._capacity is None:
            known = self.inventory
            devices = None if known.devices is None else tuple(known.devices)
            self._capacity = Capacity(self.parallel, known.cpus, known.gpus, known.ram_mb, devices)
        return self._capacity

    @property
    def leases(self) -> list[Lease]:
        """What it holds or was promised, as far as that counts."""
        promised = list(self.promises.values())
        if not self.lines:
            return promised
        held = [
            (number, lease_of(each.job))
            for number, line in self.lines.items()
            for each in _counting(line.values(), self.parting, number in self.joining)
        ]
        return one_a_line(held) + promised

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
            candidate = Candidate(
                self.name,
                self.labels,
                capacity,
                taken(leases, capacity),
                state,
                self.draining,
                tuple([lease.depth for lease in leases if lease.blocked]),
                self._reserved,
                self._kept(capacity) if self.holdings else (),
                trouble=self.trouble,
            )
            object.__setattr__(self, "_candidate", candidate)
            return candidate
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
        self._reserved = reservation
        self._stir()

    def promise(self, job: Job, fell_back: bool = False) -> None:
        """Count a job as taken while its lease is being made."""
        devices = () if fell_back else ("",) * (job.ask.gpus or 0)
        self.promises[job.id] = Lease(job.ask, devices, depth=job.depth)
        self._stir()

    def promise_to_go_on(self, job: Job) -> None:
        """Count the slot and cores that a blocked job is to have again."""
        self.promises[job.id] = Lease(Ask(cpus=job.ask.cpus), depth=job.depth)
        self._stir()

    def settle(self, job_id: str) -> None:
        """The lease was made, or was not."""
        self.promises.pop(job_id, None)
        self._stir()

    def joined(self, line: int) -> None:
        """The lease of one who is to share a slot was made, or was not."""
        self.joining[line] -= 1
        if not self.joining[line]:
            del self.joining[line]
        self._stir()

    def hold(self, holding: Holding) -> None:
        """Count a lease."""
        self.holdings[holding.lease] = holding
        self.lines.setdefault(holding.job.line, {})[holding.lease] = holding
        self._stir()

    def part_with(self, lease: int) -> None:
        """The end of a lease is being recorded: what it takes is free for one that is recorded after it."""
        self.parting.add(lease)
        self._stir()

    def keep(self, lease: int) -> None:
        """The end of a lease was not recorded."""
        self.parting.discard(lease)
        self._stir()

    def drop(self, lease: int) -> None:
        """Count a lease no more."""
        holding = self.holdings.pop(lease, None)
        if holding is not None:
            line = self.lines[holding.job.line]
            del line[lease]
            if not line:
                del self.lines[holding.job.line]
        self.parting.discard(lease)
        self._stir()

    def watched(self, changed: Callable[[], None], stirred: Callable[[Member], object]) -> Member:
        """Have ``changed`` called when placement may decide otherwise because of what this worker is, and
        ``stirred`` also when what it has to do is otherwise."""
        self._changed, self._stirred = changed, stirred
        return self


def _counting(line: Iterable[Holding], parting: set[int], joined: bool) -> Iterator[Holding]:
    """Of those who share a slot the blocked ones and the first that is not: nobody looks at the rest.

    One whose end is being recorded stands for those who will have joined by then, where there is no other.
    """
    last: Holding | None = None
    for holding in line:
        last = holding
        if holding.lease not in parting:
            yield holding
            if not holding.job.blocked:
                return
    if joined and last is not None:
        yield last


def lease_of(job: Job) -> Lease:
    """What a held job counts as."""
    return Lease(job.ask, job.devices, job.blocked, job.depth)
