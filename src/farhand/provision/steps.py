"""What becomes of a machine that was asked for: (machine, what is seen of it, now) → its next state. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..model import Machine
from .config import Settings
from .interface import ENDED, ENDING, PENDING, RUNNING, Seen

UNNEEDED_S = 10.0
"""So long nothing has to wait for a machine before it is given back unused."""

LEFT_S = 60.0
"""So long after its worker left a machine may take to end by itself."""

ENDING_S = 60.0
"""So long what was given back may take to be gone once its scheduler has ended it; a dead node never says."""

BACKOFF_S_MAX = 600.0


@dataclass(frozen=True, slots=True)
class Around:
    """What is known besides the scheduler's word. ``unneeded_s``: how long nothing has waited for it."""

    online: bool = False
    lost: bool = False
    unneeded_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """The state that follows, and what else changes."""

    state: str
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])


def after_status(machine: Machine, seen: Seen | None, now: float) -> Step | None:
    """What the scheduler's word means; ``seen`` is None when it knows nothing of the machine."""
    if machine.state == "leaving":
        return Step("ended") if seen is None or _is_over(machine, seen, now) else None
    if machine.state == "asked" and seen is None:
        return None
    if seen is None:
        return Step("ended", {"reason": _told(machine, "the scheduler knows nothing of it any more")})
    known = {"external": seen.id or machine.external, "reason": seen.reason}
    if seen.state == ENDED:
        return Step("ended", known)
    if seen.state == PENDING and machine.state in ("attached", "running"):
        return Step("pending", {**known, "waits_since": now, "attached_at": None})
    if machine.state == "attached":
        return Step("attached", known)
    return Step(RUNNING if seen.state == ENDING else seen.state, known)


def _is_over(machine: Machine, seen: Seen, now: float) -> bool:
    """Whether what was given back counts no more."""
    return seen.state == ENDED or (seen.state == ENDING and now - machine.since > ENDING_S)


def around_it(machine: Machine, around: Around, settings: Settings, now: float) -> Step | None:
    """What its worker does, and what the time is, mean for a machine."""
    if machine.state == "leaving":
        return None
    if around.online:
        attached = {"attached_at": now, "reason": ""}  # the scheduler's last word may be of a queue
        return None if machine.state == "attached" else Step("attached", attached)
    if machine.state == "attached":
        return None if around.lost else Step("running")
    if machine.attached_at is not None and not around.lost and now - machine.since > LEFT_S:
        return Step("leaving", {"reason": "its worker has left, and its job went on"})
    why = _overdue(machine, around, settings, now)
    return Step("leaving", {"reason": why}) if why else None


def _overdue(machine: Machine, around: Around, settings: Settings, now: float) -> str:
    """Why a machine that has not attached is waited for no longer; empty while it is."""
    limit_s = settings.provision_timeout_s
    if limit_s and machine.attached_at is None and now - machine.waits_since > limit_s:
        return _told(machine, f"no worker attached within {limit_s:g} s")
    if now > machine.expires_at:
        return _told(machine, "its token has expired while it waited")
    if machine.attached_at is None and around.unneeded_s > UNNEEDED_S:
        return "nothing waits for it any more"
    return ""


def backoff_s(failures: int, base_s: float) -> float:
    """How long to wait after so many failures in a row."""
    return min(BACKOFF_S_MAX, base_s * 2 ** min(failures, 16)) if failures else 0.0


def _told(machine: Machine, why: str) -> str:
    return f"{why}; it was {machine.reason}" if machine.reason else why
