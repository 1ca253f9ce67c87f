"""The flows that are measured. They do nothing, so what is left is farhand's own time."""

from __future__ import annotations

import time

from farhand import flow, task


@flow
def noop() -> float:
    """The moment at which user code began."""
    return time.time()


@task
def nothing(number: int) -> int:
    """A task that does nothing."""
    return number


@task(device="bench")
def remote(number: int) -> int:
    """A placed task that does nothing."""
    return number


@flow
def many_tasks(count: int) -> float:
    """Seconds a task call takes inside a run, the mean over ``count`` calls."""
    began = time.perf_counter()
    for number in range(count):
        nothing(number)
    return (time.perf_counter() - began) / count


@flow
def remote_calls(count: int) -> list:
    """Seconds that each of ``count`` placed calls took, one after another."""
    times = []
    for number in range(count):
        began = time.perf_counter()
        remote(number)
        times.append(time.perf_counter() - began)
    return times
