"""A descriptor that is readable from a moment on, by the clock that counts sleep. Part of the warden."""

from __future__ import annotations

import ctypes
import time
from typing import Optional

from .trees import LIBC, LINUX

CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_CLOCK_BOOTTIME = 7
_TFD_CLOEXEC = 0o2000000
_TFD_NONBLOCK = 0o4000
_TFD_TIMER_ABSTIME = 1


class _TimerSpec(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    )


def alarm() -> Optional[int]:
    """The descriptor, not set yet; None where there is none."""
    if not LINUX:
        return None
    fd = LIBC.timerfd_create(_CLOCK_BOOTTIME, _TFD_CLOEXEC | _TFD_NONBLOCK)
    return fd if fd >= 0 else None


def set_alarm(fd: int, at: float) -> None:
    """Have it ring at that moment; zero means never."""
    spec = _TimerSpec(0, 0, int(at), int(at % 1 * 1e9))
    LIBC.timerfd_settime(fd, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None)
