"""The two clocks of a worker: one that counts sleep, for leases, and the calendar, for reports."""

from __future__ import annotations

import time
from pathlib import Path

LEASE_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Counts while the machine sleeps. On macOS the monotonic clock does that already."""


def lease_now() -> float:
    """Seconds on the clock that leases are measured by; the warden reads the same one."""
    return time.clock_gettime(LEASE_CLOCK)


def wall_now() -> float:
    """Seconds since the epoch: for what people read, never for decisions."""
    return time.time()


def boot_id() -> str:
    """What is new with every boot of this machine, empty where nothing says it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
