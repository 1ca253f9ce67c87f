"""The flows that are measured. They do nothing, so what is left is farhand's own time."""

from __future__ import annotations

import os
import time
from typing import Any

from farhand import flow, load_artifact, save_artifact, task


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


@task(device="bench")
def echo(content: bytes) -> bytes:
    """A placed task that gives back what it is given."""
    return content


@flow
def remote_megabytes(count: int) -> float:
    """Seconds that ``count`` calls took which carry 1 MiB, new each time, there and back, two at once."""
    contents = [os.urandom(1024 * 1024) for _ in range(count)]
    began = time.perf_counter()
    for future, content in zip(echo.map(contents), contents):  # noqa: B905 - not in Python 3.9
        assert len(future.result()) == len(content)
    return time.perf_counter() - began


@task(device="bench")
def fetch(saved: Any) -> float:
    """Seconds that it took to have a file that is not here yet."""
    began = time.perf_counter()
    load_artifact(saved)
    return time.perf_counter() - began


@flow(runs_on="server")
def file_there(size: int) -> float:
    """The same of a new file of this many bytes, saved here."""
    return fetch(save_artifact(os.urandom(size), name="file"))


@flow(runs_on="server")
def rest() -> None:
    """Take a slot of the server until it is cancelled."""
    time.sleep(600)


@flow(device="bench")
def rest_there() -> None:
    """Take one of the worker."""
    time.sleep(600)


@flow(device="late")
def noop_late() -> float:
    """The moment at which user code began on a worker that came for it."""
    return time.time()


@flow(device="late")
def rest_late() -> None:
    """Be there when that worker is killed."""
    time.sleep(600)


@flow(device="still")
def rest_still() -> None:
    """Be there when that machine stands still."""
    time.sleep(600)


@flow(device="sim")
def noop_sim() -> float:
    """Answered by workers that run nothing, with the moment at which they were asked."""
    return time.time()
