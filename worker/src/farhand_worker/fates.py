"""Why an engine ended, in the words and reasons of an `Exit`."""

from __future__ import annotations

import signal
from typing import Optional

from .allocation import SIGNALS
from .clock import wall_now
from .engine import Ended
from .protocol import SERVICE, Assign, Exit
from .reports import LOST_VALUE

RETURNED = "returned"
"""The reason of an attempt that waited behind another and was given back before it began."""

_WORDS = {
    "cancelled": "cancelled",
    "stopped": "the worker stopped",
    "timeout": "ran longer than its timeout of {timeout_s:g} s and did not end by itself",
    "silence": "was silent for longer than its silence_timeout of {silence_s:g} s and did not end by itself",
    "import": "was still importing its module when the time for that (import_timeout_s) was over",
    "lease": "no server answered within the lease",
    "warden": "the warden ended",
    "lost_value": LOST_VALUE,
}
"""Why an agent ends an engine → what is said of it, where the job's settings have no words of their own."""

_OWN_WORDS = {"timeout": "timeout_words", "silence": "silence_words"}
"""The setting of a job that has them."""

_STOPPED_CODE = 128 + signal.SIGTERM
_KILLED = {"deadline": "lease", "warden": "warden"}
_REASONS = {"import": "timeout", "lease": "stopped", "warden": "crashed", "lost_value": "crashed"}
_REASONS_OF_SERVICES = {**_REASONS, "warden": "stopped"}
"""A warden that ended says nothing of a service: it is none of the starts that never got healthy."""


def fate_of(end: Ended) -> Optional[str]:
    """Why an engine was killed, if the warden killed it without being asked."""
    return _KILLED.get(end.killed or "")


def was_asked_by_signal(end: Ended) -> bool:
    """Whether a scheduler's signal ended an engine: its own handler of SIGTERM, or the signal's default."""
    return end.code == _STOPPED_CODE or end.signal in SIGNALS


def exit_of(assign: Assign, reason: Optional[str], otherwise: Exit) -> Exit:
    """How an attempt ended for ``reason``; ``otherwise`` when that is none of the agent's."""
    if reason == RETURNED:
        return Exit(otherwise.at, RETURNED, otherwise.message)
    if reason is None or reason not in _WORDS:
        return otherwise
    silence_s = assign.settings.get("silence_timeout_s") or 0.0
    own = assign.settings.get(_OWN_WORDS.get(reason, ""))
    words = own or _WORDS[reason].format(timeout_s=assign.timeout_s or 0.0, silence_s=silence_s)
    reasons = _REASONS_OF_SERVICES if assign.kind == SERVICE else _REASONS
    return Exit(otherwise.at, reasons.get(reason, reason), words, otherwise.code, otherwise.signal)


def exit_without(assign: Assign, reason: Optional[str], why: str, otherwise: str = "not_started") -> Exit:
    """How an attempt ended that has no engine (any more)."""
    return exit_of(assign, reason, Exit(wall_now(), otherwise, why or "the hand-off was broken off"))
