"""When a worker with nothing to do leaves, on a clock of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from farhand_worker.idle import Idle


class Clock:
    """A loop's time and its one timer."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: tuple[float, Callable[[], None]] | None = None

    def time(self) -> float:
        return self.now

    def call_later(self, delay_s: float, look: Callable[[], None]) -> Any:
        self.due = (self.now + delay_s, look)
        return self

    def cancel(self) -> None:
        self.due = None

    def go_to(self, now: float) -> None:
        while self.due is not None and self.due[0] <= now:
            self.now, look = self.due
            self.due = None
            look()
        self.now = now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: clock)
    return clock


def test_it_leaves_after_the_limit_and_not_before(clock: Clock) -> None:
    left: list[float] = []
    Idle(10.0, lambda: False, lambda: left.append(clock.now))
    clock.go_to(9.9)
    assert left == []
    clock.go_to(100.0)
    assert left == [10.0]


def test_the_time_counts_from_the_end_of_the_last_work(clock: Clock) -> None:
    left: list[float] = []
    busy = True
    idle = Idle(10.0, lambda: busy, lambda: left.append(clock.now))
    clock.go_to(37.0)
    busy = False
    idle.worked()
    clock.go_to(200.0)
    assert left == [47.0]


def test_work_between_two_looks_counts_too(clock: Clock) -> None:
    left: list[float] = []
    idle = Idle(10.0, lambda: False, lambda: left.append(clock.now))
    clock.go_to(6.0)
    idle.worked()
    clock.go_to(50.0)
    assert left == [16.0]


def test_closed_it_stays(clock: Clock) -> None:
    left: list[float] = []
    Idle(10.0, lambda: False, lambda: left.append(clock.now)).close()
    clock.go_to(50.0)
    assert left == []
