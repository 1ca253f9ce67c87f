"""What a worker has, what of it is taken, and what a job adds to that. Pure sums over live leases.

A job takes one slot (a service none) and what it asks for. While it is blocked (it waits for placed calls
alone) it gives back slot and cpus, and keeps memory and GPUs. An amount that a worker does not tell is never
short.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .model import Ask

BLOCKED_PER_SLOT = 4
"""A worker takes new runs only while it has fewer blocked engines than this for each slot."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """Slots, cores, GPUs and megabytes."""

    slots: int = 0
    cpus: int = 0
    gpus: int = 0
    ram_mb: int = 0

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(
            self.slots + other.slots,
            self.cpus + other.cpus,
            self.gpus + other.gpus,
            self.ram_mb + other.ram_mb,
        )


NAMES = ("slots", "cpus", "gpus", "ram_mb")
NOTHING = Amounts()
ONE_SLOT = Amounts(slots=1)


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a worker lends. None is unknown. ``devices`` are the names of its GPUs, where they have any."""

    slots: int
    cpus: int | None = None
    gpus: int | None = None
    ram_mb: int | None = None
    devices: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """A live lease as far as it counts. ``depth`` is that of its job."""

    ask: Ask
    devices: tuple[str, ...] = ()
    blocked: str = ""
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Lack:
    """An amount that is short: what is needed, what is free, and all there is."""

    name: str
    needed: int
    free: int
    total: int


def need(ask: Ask) -> Amounts:
    """What a job that runs takes."""
    if ask.cpus is None and ask.gpus is None and ask.ram_mb is None and ask.slots == 1:
        return ONE_SLOT
    return Amounts(ask.slots, ask.cpus or 0, ask.gpus or 0, ask.ram_mb or 0)


def to_go_on(ask: Ask) -> Amounts:
    """What a blocked job takes again when it goes on."""
    return Amounts(slots=1, cpus=ask.cpus or 0)


def held_by(lease: Lease, capacity: Capacity) -> Amounts:
    """What a live lease takes now. A job that was given no devices where they have names takes none."""
    ask = lease.ask
    gpus = len(lease.devices) if capacity.devices is not None else ask.gpus or 0
    if lease.blocked:
        return Amounts(gpus=gpus, ram_mb=ask.ram_mb or 0)
    return Amounts(ask.slots, ask.cpus or 0, gpus, ask.ram_mb or 0)


def taken(leases: Iterable[Lease], capacity: Capacity) -> Amounts:
    """What live leases take together."""
    total = NOTHING
    for lease in leases:
        total = total + held_by(lease, capacity)
    return total


def one_a_line(leases: Iterable[tuple[int, Lease]]) -> list[Lease]:
    """The leases that count, of (line, lease) in the order in which those of a line run.

    A line has one slot: what waits behind the first that is not blocked takes nothing.
    """
    found: list[Lease] = []
    taken_by = set[int]()
    for line, lease in leases:
        if line not in taken_by:
            found.append(lease)
            if not lease.blocked:
                taken_by.add(line)
    return found


def lacks(needed: Amounts, in_use: Amounts, capacity: Capacity) -> tuple[Lack, ...]:
    """The amounts that are short when ``needed`` is to be added to what is in use."""
    found: list[Lack] = []
    for name in NAMES:
        wanted = getattr(needed, name)
        total = getattr(capacity, name) if wanted else None
        if total is not None and wanted > (free := total - getattr(in_use, name)):
            found.append(Lack(name, wanted, free, total))
    return tuple(found)


def blocked_bound(capacity: Capacity) -> int:
    """How many blocked engines keep a worker from taking more that could block."""
    return BLOCKED_PER_SLOT * capacity.slots


def blocked_at(leases: Iterable[Lease], depth: int) -> int:
    """How many blocked engines there are as deep as ``depth`` or deeper.

    These count against the bound for a job of that depth: what lies deeper than all that is blocked is
    never kept out, so there is always something that can end.
    """
    return sum(1 for lease in leases if lease.blocked and lease.depth >= depth)


def pick(gpus: int, leases: Iterable[Lease], capacity: Capacity) -> tuple[str, ...]:
    """``gpus`` devices that no lease has; none where they have no names or too few are free."""
    given = {device for lease in leases for device in lease.devices}
    free = [device for device in capacity.devices or () if device not in given]
    return tuple(free[:gpus]) if len(free) >= gpus else ()
