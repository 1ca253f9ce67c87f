"""The demo as a user calls it: real processes, and nothing left of them afterwards."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

DEADLINE_S = 90.0


class Demo:
    """A demo under way, with a temporary directory of its own so that leftovers are seen."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.temporary = directory / "tmp"
        self.temporary.mkdir()
        self.out = directory / "files"
        call = [
            sys.executable,
            "-c",
            "from farhand.cli import main; main()",
            "demo",
            "--out",
            str(self.out),
            *options,
        ]
        self.process = subprocess.Popen(
            call,
            env={**os.environ, "TMPDIR": str(self.temporary), "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def read_until(self, text: str) -> str:
        """What it prints up to the line that holds ``text``."""
        assert self.process.stdout is not None
        lines: list[str] = []
        for line in self.process.stdout:
            lines.append(line)
            if text in line:
                return "".join(lines)
        raise AssertionError(f"the demo never said {text!r}:\n{''.join(lines)}")

    def processes(self) -> list[tuple[psutil.Process, str]]:
        """Those that work below its temporary directory, and what they are."""
        found: list[tuple[psutil.Process, str]] = []
        for process in psutil.process_iter():
            try:
                words, cwd = process.cmdline(), process.cwd()
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
            if process.pid != self.process.pid and any(str(self.temporary) in word for word in (*words, cwd)):
                found.append((process, " ".join(words)))
        return found


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for process in psutil.process_iter():
        try:
            if any(str(tmp_path) in word for word in process.cmdline()):
                process.kill()
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue


def test_the_demo_runs_each_year_on_the_worker_and_leaves_nothing(directory: Path) -> None:
    demo = Demo(directory)
    said, _ = demo.process.communicate(timeout=DEADLINE_S)
    assert demo.process.returncode == 0, said
    years = re.findall(r"^  summarise_year\[\d\]\s+demo\s+\S+\s+\d+\s+\S+ s\s+(\d{4}): ", said, re.MULTILINE)
    assert years == ["2012", "2013", "2014", "2015"], said
    assert re.search(r"^  extract\s+server\s.*completed at try 3$", said, re.MULTILINE), said
    assert {path.name for path in demo.out.iterdir()} == {"seattle-years.csv", "seattle-weather.svg"}
    assert "<svg" in (demo.out / "seattle-weather.svg").read_text()
    assert demo.processes() == []
    assert [path.name for path in demo.temporary.iterdir() if path.name.startswith("farhand-demo-")] == []


def test_ctrl_c_ends_the_demo_and_everything_it_started(directory: Path) -> None:
    demo = Demo(directory)
    demo.read_until("Starting a worker")
    demo.process.send_signal(signal.SIGINT)
    demo.process.communicate(timeout=DEADLINE_S)
    assert demo.process.returncode == 130
    assert demo.processes() == []
    assert [path.name for path in demo.temporary.iterdir() if path.name.startswith("farhand-demo-")] == []


def test_a_kept_demo_stays_up_until_it_is_stopped_as_it_says(directory: Path) -> None:
    demo = Demo(directory, "--keep")
    said, _ = demo.process.communicate(timeout=DEADLINE_S)
    assert demo.process.returncode == 0, said
    stop = re.search(r"kill ([\d ]+); rm -r (\S+)", said)
    assert stop is not None, said
    assert "/signin?code=" in said
    kept = [psutil.Process(int(pid)) for pid in stop[1].split()]
    assert all(process.is_running() for process in kept)
    for process in kept:
        process.terminate()
    deadline = time.monotonic() + DEADLINE_S
    while demo.processes() and time.monotonic() < deadline:
        psutil.wait_procs([process for process, _ in demo.processes()], timeout=1)
    assert demo.processes() == []
