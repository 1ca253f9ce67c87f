"""How a stem is begun: with what command, what it reads first, and of which interpreters there is one."""

from __future__ import annotations

import inspect
import os
from typing import List, Optional, Tuple

from . import seed
from .trees import LINUX

Interpreter = Tuple[int, int, int, int]
"""An interpreter as it is on disk: device, inode, size, time of change."""

_SEED = f"exec(open({seed.FD}, 'rb', 0, closefd=False).readline())"
"""What a stem is started with: what it executes is the first line it gets."""


def interpreter_of(python: str) -> Optional[Interpreter]:
    """The interpreter that a stem of it would be of; None where it can have no stem."""
    try:
        found = os.stat(python)
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns) if LINUX else None


def command_of(python: str) -> List[str]:
    """What starts a stem."""
    return [python, "-I", "-S", "-c", _SEED]


def first_line() -> str:
    """What it is to read first."""
    return f"exec({inspect.getsource(seed)!r})"
