"""What a worker tells of itself: its state as one record, and one sentence on its health. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Dict, List, Optional

from .machine import Inventory
from .protocol import IMPORT, SERVICE
from .tally import FlowTally, Message, fails

BEATS_MISSED = 3
"""Heartbeats without an answer, after which a worker is not healthy."""


@dataclass(frozen=True)
class Running:
    """A job that runs now. ``since`` is when user code began, None while it is being prepared."""

    job: str
    run: str
    flow: str
    kind: str
    since: Optional[float]


@dataclass(frozen=True)
class Host:
    """The machine, and the interpreters on it."""

    name: str
    system: str
    python: str
    user_python: str
    inventory: Inventory
    found_by: Dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Status:
    """Everything at one moment. ``silent_s``: how long the server has not answered; ``disk``: why that takes
    nothing, mostly empty; ``*at``: UTC seconds."""

    at: float
    name: str
    labels: List[str]
    version: str
    server: str
    attached: bool
    since: float
    answered_at: Optional[float]
    silent_s: float
    heartbeat_s: float
    trouble: str
    disk: str
    draining: bool
    code: str
    started_at: float
    parallel: int
    running: List[Running]
    total: FlowTally
    flows: List[FlowTally]
    messages: List[Message]
    host: Host


def healthy(status: Status) -> bool:
    """Whether the server has answered within three heartbeats."""
    return status.silent_s < BEATS_MISSED * status.heartbeat_s


def sentence(status: Status) -> str:
    """The health of the worker, as one would say it."""
    used = f"{used_slots(status)} of {counted(status.parallel, 'slot')} in use"
    if not status.attached:
        known = "has been away" if status.answered_at is not None else "has not been reached"
        jobs = f"; {counted(len(status.running), 'job')} still running" if status.running else ""
        since = duration(status.silent_s)
        return f"The server {known} for {since}{jobs}: {status.trouble}. It is dialled again."
    if not healthy(status):
        return f"Attached, but the server has not answered for {duration(status.silent_s)}."
    if status.disk:
        return f"Nothing new is taken: {status.disk}; {counted(len(status.running), 'job')} to finish."
    if status.draining:
        return f"Draining: nothing new is taken, {counted(len(status.running), 'job')} to finish."
    failing = [tally.flow for tally in status.flows if fails(tally)]
    if failing:
        more = f" and {len(failing) - 1} more" if len(failing) > 1 else ""
        return f"Attached with {used}; the last job of {failing[0]}{more} failed."
    return f"All is well: attached with {used}."


def used_slots(status: Status) -> int:
    """The slots in use; a look whether code can be imported takes none, nor does a service."""
    return sum(job.kind not in (IMPORT, SERVICE) for job in status.running)


def mood(status: Status) -> str:
    """The sentence in a word: well, failing, draining or away."""
    if not status.attached or not healthy(status):
        return "away"
    if status.draining and not status.disk:
        return "draining"
    return "failing" if status.disk or any(map(fails, status.flows)) else "well"


def as_json(status: Status) -> Dict[str, Any]:
    """The record for programs: every field, with the sentence and its word."""
    body = asdict(status)
    body["messages"] = [message._asdict() for message in status.messages]
    return {"health": mood(status), "sentence": sentence(status), "healthy": healthy(status), **body}


def duration(seconds: float) -> str:
    """A length of time as people say it."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def counted(number: int, noun: str) -> str:
    """``1 job``, ``2 jobs``."""
    return f"{number} {noun}" + ("" if number == 1 else "s")
