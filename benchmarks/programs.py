"""What is measured without a server: how long programs take, and work inside a script."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

_FARHAND = "from farhand.cli import main; main()"
_REPEATS = 15

SMALLEST = """
from farhand import flow

@flow
def nothing():
    return 1

nothing()
"""

WORK = """
import sys, time
from farhand import flow, task

@task
def nothing(number: int) -> int:
    return number

@flow
def one_after_another(count: int):
    began = time.perf_counter()
    for number in range(count):
        nothing(number)
    return time.perf_counter() - began

@flow
def mapped(count: int):
    began = time.perf_counter()
    for future in nothing.map(range(count)):
        future.result()
    return time.perf_counter() - began

count = int(sys.argv[2])
print({"loop": one_after_another, "map": mapped}[sys.argv[1]](count))
"""


def measure(directory: Path, python_s: float) -> dict[str, float]:
    """Everything here, by the keys of `figures.ROWS`; ``python_s`` is what starting Python alone takes."""
    smallest, work = directory / "smallest.py", directory / "work.py"
    smallest.write_text(SMALLEST)
    work.write_text(WORK)
    home = directory / "scripts"
    return {
        "import": (_median(home, "-c", "import farhand") - python_s) * 1e3,
        "help": _median(home, "-c", _FARHAND, "--help") * 1e3,
        "script": _median(home, str(smallest)) * 1e3,
        "task_script": _said(home, str(work), "loop", "5000") / 5000 * 1e6,
        "mapped": _said(home, str(work), "map", "10000"),
    }


def _median(home: Path, *arguments: str) -> float:
    times: list[float] = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        _run(home, *arguments)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _said(home: Path, *arguments: str) -> float:
    return statistics.median(float(_run(home, *arguments).splitlines()[-1]) for _ in range(3))


def _run(home: Path, *arguments: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FARHAND_")}
    done = subprocess.run(
        [sys.executable, *arguments],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment | {"FARHAND_HOME": str(home)},
    )
    return done.stdout
