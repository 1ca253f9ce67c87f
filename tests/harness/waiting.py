"""Waiting for what another process does: look until it is so, or fail saying what was seen last."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LOOK_S, LOOK_S_MAX = 0.01, 0.05


def eventually(look: Callable[[], T], within_s: float = 20.0, what: str | Callable[[], str] = "") -> T:
    """The first true answer of ``look``; fails with its last answer after ``within_s``."""
    began = time.monotonic()
    while True:
        seen = look()
        if seen:
            return seen
        waited = time.monotonic() - began
        if waited > within_s:
            told = what() if callable(what) else what
            raise AssertionError(f"not within {within_s} s: {told or look}; last seen: {seen!r}")
        time.sleep(_pause(waited))


def throughout(look: Callable[[], bool], for_s: float, what: str = "") -> None:
    """Fail as soon as ``look`` is false within ``for_s``."""
    deadline = time.monotonic() + for_s
    while time.monotonic() < deadline:
        assert look(), f"ceased to be so: {what or look}"
        time.sleep(_pause(for_s))


def _pause(waited_s: float) -> float:
    """A tenth of what was waited: looking costs the other processes the time that they are waited for."""
    return min(max(waited_s / 10, LOOK_S), LOOK_S_MAX)
