"""When a run's calls get threads: at once where they wait, one after another where they compute."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from farhand import flow, task
from farhand.sdk.futures import Future
from farhand.sdk.pool import THREADS_MAX, Look, Pool, wanted

BRISK = Look(threads=1, taken=100, elapsed_s=0.004, cpu_s=0.004, late=False, stood_s=0.0)


@pytest.mark.parametrize(
    ("seen", "more"),
    [
        ({}, 0),
        ({"cpu_s": 0.0}, 0),
        ({"taken": 4, "cpu_s": 0.001}, 1),
        ({"taken": 4}, 0),
        ({"taken": 16, "threads": 4, "cpu_s": 0.001}, 4),
        ({"taken": 16, "threads": 12, "cpu_s": 0.001}, 9),
        ({"taken": 0}, 9),
        ({"taken": 0, "late": True}, 0),
        ({"taken": 0, "late": True, "cpu_s": 0.001}, 9),
        ({"taken": 0, "late": True, "stood_s": 0.06}, 9),
    ],
)
def test_threads_are_started_for_calls_that_wait_and_not_for_calls_that_compute(
    seen: dict[str, Any], more: int
) -> None:
    assert wanted(BRISK._replace(**seen), room=9) == more


@pytest.mark.parametrize("rounds", [1, 3])
def test_calls_that_wait_for_each_other_all_run(monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
    monkeypatch.setenv("FARHAND_RECORD", "0")
    barrier = threading.Barrier(THREADS_MAX)

    @task
    def meets(number: int) -> int:
        barrier.wait(30)
        return number

    @flow
    def all_of_them() -> list[list[int]]:
        return [meets.map(range(THREADS_MAX)).result() for _ in range(rounds)]

    assert all_of_them() == [list(range(THREADS_MAX))] * rounds


def test_a_call_that_computes_for_long_does_not_hold_up_the_others_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FARHAND_RECORD", "0")
    told = threading.Event()

    @task
    def spins() -> None:
        while not told.is_set():
            pass

    @task
    def tells() -> None:
        told.set()

    @flow
    def both() -> None:
        spins.submit()
        tells.submit()

    both()
    assert told.is_set()


def test_a_call_is_counted_once_however_often_it_is_tracked() -> None:
    pool, future = Pool(), Future[int]("key", "name")
    for _ in range(2):
        pool.track(future)
    assert not pool.wait(0)
    future.settle(1)
    assert pool.wait(0)
