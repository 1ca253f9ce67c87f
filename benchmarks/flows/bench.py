"""The flows that are measured. They do nothing, so what is left is farhand's own time."""

from __future__ import annotations

import time

from farhand import flow, task


@flow
def noop() -> float:
    """The moment at which user code began."""
    return time.time()


@flow(device="bench")
def noop_there() -> float:
    """The same on the worker."""
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
    """The moment before the first of ``count`` calls of a task."""
    began_at = time.time()
    for number in range(count):
        nothing(number)
    return began_at


@flow
def many_lines(count: int) -> float:
    """The moment before the first of ``count`` lines."""
    began_at = time.time()
    for number in range(count):
        print("line", number)
    return began_at


@flow
def remote_calls(count: int) -> list:
    """Seconds that each of ``count`` placed calls took, one after another."""
    times = []
    for number in range(count):
        began = time.perf_counter()
        remote(number)
        times.append(time.perf_counter() - began)
    return times


@flow
def remote_map(count: int) -> float:
    """Seconds that ``count`` placed calls took, all asked for at once."""
    began = time.perf_counter()
    for future in remote.map(range(count)):
        future.result()
    return time.perf_counter() - began
