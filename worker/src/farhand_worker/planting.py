"""How a stem is begun: with what command, what it reads first, and of which interpreters there is one."""

from __future__ import annotations

import inspect
import json
import os
from pathlib import Path
from typing import List, NamedTuple, Optional, Tuple

from . import seed
from .trees import LINUX

Interpreter = Tuple[int, int, int, int]
"""An interpreter as it is on disk: device, inode, size, time of change."""


class Planted(NamedTuple):
    """A stem that the warden was told to start: of which interpreter, where its output is to be read, and
    which runtime it was told to load, if there was one.
    """

    engine: str
    python: Interpreter
    output: int
    runtime: Optional[Path] = None


_SEED = f"exec(open({seed.FD}, 'rb', 0, closefd=False).readline())"
"""What a stem is started with: what it executes is the first line it gets."""


_SDK = Path("farhand", "sdk")


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


def has_stem(runtime: Path) -> bool:
    """Whether engines of a runtime can be forked: those of older servers cannot."""
    return (runtime / _SDK / "stem.py").exists()


def second_line(runtime: Path) -> str:
    """What it is to read once there is a runtime, with which it goes on."""
    return json.dumps({"entry": str(runtime / _SDK / "engine.py")})


def first_line() -> str:
    """What it is to read first."""
    return f"exec({inspect.getsource(seed)!r})"
