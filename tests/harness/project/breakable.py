"""Flows that leave witnesses in files, so that a test can count what really ran, and where."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from farhand import emit, flow, task


def witness(path: str, text: str) -> None:
    """Append one line, in one write."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, f"{text} {os.getpid()} {time.time():.6f}\n".encode())
    finally:
        os.close(descriptor)


@task
def step(path: str, number: int) -> int:
    witness(path, f"step{number}")
    return number


@flow
def three_steps(path: str) -> int:
    """Three tasks, each of which leaves a line."""
    return sum(step(path, number) for number in (1, 2, 3))


@flow
def ticking(path: str, seconds: float, every: float = 0.05) -> int:
    """Print and witness a numbered line every so often."""
    return tick(path, seconds, every)


@flow(runs_on="worker")
def ticking_there(path: str, seconds: float, every: float = 0.05, gate: str = "") -> int:
    """The same, on a machine that dialled in; until there is a file ``gate``, where it is named."""
    return tick(path, seconds, every, gate)


@flow(runs_on="worker", crash_retries=0)
def ticking_once(path: str, seconds: float, every: float = 0.05) -> int:
    """The same, and a lost worker ends it."""
    return tick(path, seconds, every)


def tick(path: str, seconds: float, every: float, gate: str = "") -> int:
    witness(path, "begin")
    count = 0
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not (gate and os.path.exists(gate)):
        count += 1
        print(f"tick {count}")
        witness(path, f"tick{count}")
        time.sleep(every)
    witness(path, "end")
    return count


@flow(runs_on="worker")
def checkpointed_there(path: str, gate: str) -> list[int]:
    """Two tasks, a wait for a file, and a third task."""
    first = [step(path, 1), step(path, 2)]
    wait_for(gate)
    return [*first, step(path, 3)]


@task
def wait_for(gate: str) -> None:
    while not Path(gate).exists():
        time.sleep(0.01)


@flow
def waiting(gate: str) -> str:
    """Wait for a file."""
    wait_for(gate)
    return "done"


@flow(runs_on="worker")
def waiting_there(path: str, gate: str) -> str:
    """Wait for a file, on a machine that dialled in."""
    witness(path, "begin")
    wait_for(gate)
    witness(path, "end")
    return "done"


_GRANDCHILD = """
import os, signal, sys, time
os.setsid()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1], "a").write(f"{os.getpid()}\\n")
time.sleep(600)
"""


def leave_child(path: str) -> None:
    """Start a child that calls setsid and ignores SIGTERM, and wait until it has said so."""
    subprocess.Popen([sys.executable, "-c", _GRANDCHILD, path], start_new_session=False)
    while not Path(path).exists() or not Path(path).read_text().strip():
        time.sleep(0.01)


@flow(runs_on="worker")
def parent_there(path: str, children: str, gate: str) -> str:
    """Leave a stubborn child behind, then wait for a file."""
    witness(path, "begin")
    leave_child(children)
    wait_for(gate)
    return "done"


@flow
def abandoning(children: str) -> str:
    """Leave a stubborn child behind and end."""
    leave_child(children)
    return "done"


@flow(runs_on="worker")
def deaf(path: str) -> None:
    """Ignore SIGTERM and every exception."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        try:
            witness(path, "alive")
            time.sleep(0.05)
        except BaseException:  # noqa: BLE001 - the point of this flow is to be deaf
            witness(path, "asked")


@task(device="demo")
def placed(path: str, number: int) -> int:
    witness(path, f"placed{number}")
    emit(number=number)
    return number * number


@flow
def mapping(path: str, count: int) -> int:
    """Place calls on machines with a label, and add up what they return."""
    return sum(future.result() for future in placed.map([path] * count, range(count)))


@task(device="demo")
def bulk(size: int) -> bytes:
    """So many bytes, made where a machine with the label is."""
    return os.urandom(1) * size


@flow(runs_on="worker")
def heavy_there(path: str, gate: str, size: int) -> bytes:
    """So many bytes, once the gate is open."""
    witness(path, "began")
    wait_for(gate)
    return os.urandom(1) * size


@task(device="demo")
def weigh(content: bytes) -> int:
    return len(content)


@flow
def bulky(size: int) -> int:
    """Bring many bytes here from another machine, and send them back there."""
    return weigh(bulk(size))


@flow(runs_on="worker")
def starving_there(seconds: float) -> str:
    """Take every core, several times over."""
    spinning = "import time, sys\nend = time.time() + float(sys.argv[1])\nwhile time.time() < end: pass"
    many = [subprocess.Popen([sys.executable, "-c", spinning, str(seconds)]) for _ in range(6)]
    return str([one.wait() for one in many])


@flow(runs_on="worker")
def holding_there(seconds: int) -> str:
    """Stand in C code that holds the interpreter's lock."""
    ctypes.PyDLL(None).sleep(seconds)
    return "done"


@flow(runs_on="worker")
def printing_there(lines: int, width: int) -> int:
    """Print more than the link carries."""
    for number in range(lines):
        print(f"{number} ".ljust(width, "x"))
    return lines


@flow
def failing() -> None:
    """Fail."""
    raise ValueError("this flow always fails")
