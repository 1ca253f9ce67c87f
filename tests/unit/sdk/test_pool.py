"""When a run's calls get threads: at once where they wait, one after another where they compute."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

from farhand import flow, task
from farhand.errors import Cancelled
from farhand.sdk.futures import Future
from farhand.sdk.interrupts import Watcher
from farhand.sdk.pool import THREADS_MAX, Entry, Look, Pool, wanted

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


def test_a_call_for_which_no_thread_can_be_started_fails_and_is_waited_for_by_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool, future = Pool(), Future[int]("key", "name")

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    pool.submit(lambda: None, future)
    with pytest.raises(RuntimeError, match="no thread can be started"):
        future.result(0)
    assert pool.wait(0)


def test_a_thread_that_meets_a_cancel_after_its_call_has_ended_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool, futures = Pool(1), [Future[int](f"key {n}", "name") for n in range(2)]
    run = Entry.run

    def struck(entry: Entry) -> None:
        run(entry)
        if entry.future is futures[0]:
            pool.submit(lambda: futures[1].settle(1), futures[1])
            raise Cancelled("too late for it")

    monkeypatch.setattr(Entry, "run", struck)
    pool.submit(lambda: futures[0].settle(0), futures[0])
    assert [future.result(10) for future in futures] == [0, 1]
    pool.close()


def test_one_who_waits_for_a_call_and_fails_keeps_nobody_waiting(
    capsys: pytest.CaptureFixture[str],
) -> None:
    future, told = Future[int]("key", "name"), list[str]()
    future.when_done(lambda: sys.exit("odd"))
    future.when_done(lambda: told.append("the other"))
    future.settle(1)
    assert told == ["the other"]
    assert "SystemExit: odd" in capsys.readouterr().err


def test_a_timer_that_fails_keeps_no_other_from_coming(capsys: pytest.CaptureFixture[str]) -> None:
    watcher, came = Watcher(), threading.Event()
    watcher.after(0.0, lambda: sys.exit("odd"))
    watcher.after(0.0, came.set)
    assert came.wait(10)
    assert "SystemExit: odd" in capsys.readouterr().err
