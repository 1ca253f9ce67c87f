"""What the processes of a server and a worker use: CPU time and memory, as the kernel counts them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True)
class Spent:
    """Seconds of CPU time. ``engines`` are all that the warden has ever started, those that ended too."""

    server: float
    agent: float
    engines: float

    def since(self, before: Spent, count: int) -> dict[str, float]:
        """Milliseconds that each spent on one of ``count``."""
        return {
            f"cpu_{name}": (getattr(self, name) - getattr(before, name)) / count * 1000
            for name in ("server", "agent", "engines")
        }


def spent(server: int, agent: int) -> Spent:
    """What a server and one of its workers have spent so far."""
    wardens = psutil.Process(agent).children()
    engines = sum(_reaped(warden) + sum(map(_own, warden.children())) for warden in wardens)
    return Spent(_own(psutil.Process(server)), _own(psutil.Process(agent)), engines)


def agent_of(state: Path) -> int:
    """The agent that holds a worker's state directory."""
    return int((state / "lock").read_text().split()[0])


def cpu_s(pid: int) -> float:
    """CPU time of one process so far."""
    return _own(psutil.Process(pid))


def memory_mb(pid: int) -> float:
    """Resident memory."""
    return psutil.Process(pid).memory_info().rss / 1e6


def _own(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _reaped(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.children_user + times.children_system
