"""Where a job may run: (ask, workers) → the worker, or why none. Pure; the answer is what people are shown.

A worker can be refused for good (it lacks a label, it is not the one asked for) or for now (no free
slot, it is lost or draining). `prefer` falls back to the server only when every attached worker is
refused for good: busy means wait, and a worker that is lost for a moment still counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .model import LOCAL_WORKER, Ask


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one worker was not taken. ``for_good``: no wait changes it."""

    worker: str
    code: str
    message: str
    for_good: bool


@dataclass(frozen=True, slots=True)
class Candidate:
    """A worker as placement sees it. ``busy`` counts slots taken or promised; ``against`` is what the code of
    the job in question says against it (see `farhand.suitability`)."""

    name: str
    labels: frozenset[str]
    parallel: int
    busy: int
    state: str = "online"
    draining: bool = False
    against: Refusal | None = None

    @property
    def room(self) -> int:
        """Free slots."""
        return self.parallel - self.busy


@dataclass(frozen=True, slots=True)
class Placement:
    """The worker to take, or None and why each was refused, in one sentence as well."""

    worker: str | None
    refusals: tuple[Refusal, ...] = ()
    message: str = ""


def place(ask: Ask, candidates: Sequence[Candidate]) -> Placement:
    """Choose a worker for a job that asks for ``ask``."""
    refusals = [(candidate, _refuse(ask, ask.labels, candidate)) for candidate in candidates]
    chosen = _best(ask, [candidate for candidate, refusal in refusals if refusal is None])
    if chosen is not None:
        return Placement(chosen.name)
    reasons = tuple(refusal for _, refusal in refusals if refusal is not None)
    if _falls_back(ask, reasons):
        server = next((c for c in candidates if c.name == LOCAL_WORKER), None)
        refusal = None if server is None else _refuse(ask, (), server)
        if server is not None and refusal is None:
            return Placement(server.name)
        if refusal is not None:
            reasons = (*(r for r in reasons if r.worker != LOCAL_WORKER), refusal)
    return Placement(None, reasons, explain(ask, candidates, reasons))


def _refuse(ask: Ask, labels: Sequence[str], candidate: Candidate) -> Refusal | None:
    """The first reason against a candidate; reasons for good come first."""
    name = candidate.name
    if not _is_addressed(ask.runs_on, name):
        return Refusal(name, "not_asked_for", f"it asks for {ask.runs_on}", True)
    missing = [label for label in labels if label not in candidate.labels]
    if missing:
        return Refusal(name, "label_missing", f"has no label {', '.join(missing)}", True)
    if candidate.against is not None and candidate.against.for_good:
        return candidate.against
    if candidate.state != "online":
        return Refusal(name, candidate.state, f"is {candidate.state}", candidate.state == "offline")
    if candidate.draining:
        return Refusal(name, "draining", "is draining", False)
    if candidate.parallel <= 0:
        return Refusal(name, "no_slots", "has no slots", True)
    if candidate.room <= 0:
        return Refusal(name, "no_slot", f"has {candidate.busy} of {candidate.parallel} slots taken", False)
    return candidate.against


def _is_addressed(runs_on: str, name: str) -> bool:
    if runs_on == "any":
        return True
    if runs_on == "worker":
        return name != LOCAL_WORKER
    return name == runs_on


def _best(ask: Ask, fitting: Sequence[Candidate]) -> Candidate | None:
    """The server first for jobs that ask for no device, then the worker with most room."""
    return max(fitting, key=lambda c: (c.name == LOCAL_WORKER and not ask.labels, c.room), default=None)


def _falls_back(ask: Ask, reasons: Sequence[Refusal]) -> bool:
    elsewhere = [reason for reason in reasons if reason.worker != LOCAL_WORKER]
    return ask.policy == "prefer" and ask.runs_on == "any" and all(reason.for_good for reason in elsewhere)


def explain(ask: Ask, candidates: Sequence[Candidate], reasons: Sequence[Refusal]) -> str:
    """One sentence on what the job waits for."""
    wanted = f"label {', '.join(ask.labels)}" if ask.labels else "a free slot"
    if ask.runs_on != "any":
        wanted += f" on {ask.runs_on}"
    if not candidates:
        return f"waits for {wanted}; no worker is attached"
    listed = "; ".join(f"{reason.worker} {reason.message}" for reason in reasons[:8])
    if all(reason.for_good for reason in reasons):
        return f"waits for {wanted}; no attached worker could ever take it: {listed}"
    return f"waits for {wanted}: {listed}"
