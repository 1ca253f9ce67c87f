"""What runs on this machine, by what a process carries in its environment or its arguments."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil

from farhand.sdk.stem import NAME


def carrying(variable: str, value: str | None = None) -> list[int]:
    """The processes whose environment has ``variable`` (set to ``value``)."""
    wanted = f"{variable}=".encode() if value is None else f"{variable}={value}\0".encode()
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _environment_has(entry, wanted):
            found.append(int(entry.name))
    return found


def _environment_has(entry: Path, wanted: bytes) -> bool:
    try:
        return wanted in b"\0" + (entry / "environ").read_bytes() and _runs(int(entry.name))
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        return False


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    return _runs(pid)


def is_stem(pid: int) -> bool:
    """Whether the process is one that engines are forked from, ready for it."""
    try:
        return Path(f"/proc/{pid}/comm").read_bytes().strip() == NAME
    except OSError:
        return False


def command_of(pid: int) -> bytes:
    """What the process was started with; a forked one has its parent's."""
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def process_of(pid: int | None) -> psutil.Process | None:
    """A handle that knows the process from a later one of the same id; None for none, and for no id."""
    try:
        return psutil.Process(pid) if pid else None
    except psutil.NoSuchProcess:
        return None


def descendants(pid: int) -> list[int]:
    """Every process below ``pid``."""
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def send(pid: int, number: int) -> None:
    """Send a signal to one process. Where there is none it has no id: 0 is the whole group of the tests."""
    assert pid > 0, "there is no such process"
    os.kill(pid, number)


def signal_all(pids: list[int], number: int) -> None:
    """Send a signal to each that still runs."""
    for pid in pids:
        try:
            send(pid, number)
        except ProcessLookupError:
            continue


def kill_tree(pid: int) -> None:
    """SIGKILL a process and all below it."""
    below = descendants(pid)
    signal_all([pid, *below], signal.SIGKILL)
