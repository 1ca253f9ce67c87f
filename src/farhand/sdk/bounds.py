"""What the kernel keeps of a process, and a job may have changed: its place, its limits, its descriptors.

Most of it cannot be put back: who has lowered a limit may not raise it. So an engine that a job leaves other
than it began is not used again; the next job would be slow, out of files, or deaf to its timeout for what
another did.
"""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports]
import os
import signal
import sys
from typing import Any, Callable, Tuple

_LEFT_OPEN_MAX = 100
"""So many descriptors jobs may leave open, in what stays loaded, before another process takes their place."""

_affinity: Callable[[int], Any] = getattr(os, "sched_getaffinity", lambda _process: None)
_mask: Callable[..., Any] = _signal.pthread_sigmask  # pyright: ignore[reportUnknownMemberType]


class Bounds:
    """How an engine was when it began. Every job waits for the question, which costs a few calls."""

    def __init__(self) -> None:
        self._place, self._limits = _place(), _limits()
        high = _lowest_free() + _LEFT_OPEN_MAX
        self._looked_at = (high, high + 1)

    def kept(self) -> bool:
        """Whether it is still so. Limits are changed through a module, and looked at where that is loaded."""
        if _place() != self._place or any(map(_is_open, self._looked_at)):
            return False
        return "resource" not in sys.modules or _limits() == self._limits


def _place() -> Tuple[Any, ...]:
    blocked = _mask(signal.SIG_BLOCK, ())
    return os.getpriority(os.PRIO_PROCESS, 0), _affinity(0), blocked, os.geteuid()


def _limits() -> bytes:
    """The resource limits as the kernel tells them; empty where it does not."""
    try:
        fd = os.open("/proc/self/limits", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # not there, or no descriptor is left to ask with, which then is another answer too
        return b""
    try:
        return os.read(fd, 8192)
    finally:
        os.close(fd)


def _is_open(fd: int) -> bool:
    """Whether a descriptor is open. The lowest are given out first, so a high one is after many others."""
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _lowest_free() -> int:
    fd = os.dup(2)
    os.close(fd)
    return fd
