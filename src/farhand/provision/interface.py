"""What a provisioner is. Whatever is asked of one may fail, hang or be answered late; see each exception."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..engine.machines import Check
from .config import Profile

PENDING, RUNNING, ENDING, ENDED = "pending", "running", "ending", "ended"
"""`ENDING`: the scheduler has ended it, and counts it no more; what ran there may not be gone yet."""


@dataclass(frozen=True, slots=True)
class Order:
    """A machine to be had: ``name`` is what the scheduler is to know it by, and the worker's own.

    ``token`` is the worker's credential; it belongs on standard input, never among arguments. ``url`` is that
    of a relay where there is a ``url_file``: there its machine finds whether that has gone elsewhere.
    """

    name: str
    profile: Profile
    url: str
    token: str
    pin: str = ""
    url_file: str = ""


@dataclass(frozen=True, slots=True)
class Reach:
    """How workers reach the server: by ``url``, unless they see another one in ``url_file``."""

    url: str
    pin: str = ""
    url_file: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """A machine that was asked for; ``id`` is the scheduler's, empty while that is not known."""

    name: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a scheduler says of a machine, one of the words above, and why in its own words."""

    state: str
    reason: str = ""
    id: str = ""


class SubmitFailed(Exception):
    """Nothing was accepted, or nobody knows whether it was; the message has the scheduler's own words.

    Either way the name is looked up before it is submitted again.
    """


class SchedulerAway(Exception):
    """The scheduler could not be asked; what it was asked about is as it was, as far as anybody knows."""


class Provisioner(Protocol):
    """One that was configured. Every call ends within its own time limit, whatever the other side does."""

    interval_s: float
    """How often `status` is worth asking while all goes well."""

    async def submit(self, order: Order) -> str:
        """Ask for a machine; its id. Raises `SubmitFailed`."""
        ...

    async def status(self, asked: Sequence[Asked]) -> Mapping[str, Seen]:
        """What is known of machines, by name. One that is absent there does not exist (any more).

        Raises `SchedulerAway`.
        """
        ...

    async def cancel(self, asked: Sequence[Asked]) -> set[str]:
        """Give machines back; the names of those that the scheduler has been told of. Never raises."""
        ...

    async def test(self, order: Order, submit: bool) -> list[Check]:
        """Try everything up to a submission, or with a real job that ends by itself. Never raises."""
        ...

    async def close(self) -> None:
        """End what was kept open."""
        ...
