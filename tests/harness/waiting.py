"""Waiting for what another process does: look until it is so, or fail saying what was seen last."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LOOK_S = 0.01


def eventually(look: Callable[[], T], within_s: float = 20.0, what: str = "") -> T:
    """The first true answer of ``look``; fails with its last answer after ``within_s``."""
    deadline = time.monotonic() + within_s
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s} s: {what or look}; last seen: {seen!r}")
        time.sleep(LOOK_S)


def throughout(look: Callable[[], bool], for_s: float, what: str = "") -> None:
    """Fail as soon as ``look`` is false within ``for_s``."""
    deadline = time.monotonic() + for_s
    while time.monotonic() < deadline:
        assert look(), f"ceased to be so: {what or look}"
        time.sleep(LOOK_S)
