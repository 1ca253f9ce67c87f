"""Which machines to ask for: (what waits, what can be had, what is on its way) → the profiles. Pure.

A profile is what a scheduler is asked for; what it says of itself is believed until a machine of it has
attached. An amount that a profile does not name is none that it promises: a job that asks for it is not
covered. A label alone is enough.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from .model import Ask
from .placement import Candidate, refuse_ever
from .resources import Capacity

Key = tuple[str, str]
"""The names of a provisioner and of its profile."""

_ANY_NAME = "a machine"


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape of machine that can be had, and how many of it at most, attached ones included."""

    provisioner: str
    name: str
    labels: tuple[str, ...] = ()
    cpus: int | None = None
    gpus: int | None = None
    ram_mb: int | None = None
    slots: int = 1
    max_outstanding: int = 1

    @property
    def key(self) -> Key:
        """By what it is known."""
        return self.provisioner, self.name


@dataclass(frozen=True, slots=True)
class Demand:
    """So many jobs that ask alike wait for a machine which no worker that is there could be.

    ``out`` are the profiles whose machines came and could not take them.
    """

    ask: Ask
    jobs: int = 1
    out: frozenset[Key] = frozenset()


@dataclass(frozen=True, slots=True)
class Standing:
    """What there is of a shape: machines on their way, and attached ones."""

    awaited: int = 0
    attached: int = 0


def covers(shape: Shape, ask: Ask) -> bool:
    """Whether a machine of that shape, if it is what its profile says, could take a job that asks so."""
    capacity = Capacity(shape.slots, shape.cpus or 0, shape.gpus or 0, shape.ram_mb or 0)
    return refuse_ever(ask, Candidate(_ANY_NAME, frozenset(shape.labels), capacity)) is None


def smallest(shapes: Sequence[Shape], ask: Ask, out: Collection[Key] = frozenset()) -> Shape | None:
    """The smallest shape that covers an ask; ``out`` are those whose machines turned out not to."""
    fitting = [s for s in shapes if s.key not in out and covers(s, ask)]
    return min(fitting, key=_size, default=None)


def wanted(
    demands: Sequence[Demand], shapes: Sequence[Shape], standing: Mapping[Key, Standing]
) -> list[Shape]:
    """The machines to ask for now, a shape once for each.

    Jobs that wait for machines of one shape share them by its slots; what is on its way counts, and with
    what is attached no more than ``max_outstanding`` are had at once.
    """
    jobs: dict[Key, int] = {}
    for demand in demands:
        shape = smallest(shapes, demand.ask, demand.out)
        if shape is not None:
            jobs[shape.key] = jobs.get(shape.key, 0) + demand.jobs
    found: list[Shape] = []
    for shape in shapes:
        there = standing.get(shape.key, Standing())
        needed = -(-jobs.get(shape.key, 0) // shape.slots) - there.awaited
        allowed = shape.max_outstanding - there.awaited - there.attached
        found += [shape] * max(0, min(needed, allowed))
    return found


def _size(shape: Shape) -> tuple[int, int, int, int]:
    return shape.gpus or 0, shape.ram_mb or 0, shape.cpus or 0, len(shape.labels)
