"""The interpreter of user code: found and asked once, before anything else."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from typing import NamedTuple, Optional

from .usage import Usage

_ASK = "import platform, sys; print(platform.python_version(), sys.version_info >= (3, 9))"


class Interpreter(NamedTuple):
    """Its absolute path and its version."""

    path: str
    version: str


def interpreter(program: Optional[str]) -> Interpreter:
    """The interpreter of that name or path; by default the one that runs this. Raises `Usage`."""
    if program is None:
        return Interpreter(os.path.abspath(sys.executable), platform.python_version())
    path = os.path.abspath(shutil.which(program) or program)
    try:
        answer = subprocess.run(
            [path, "-I", "-S", "-c", _ASK], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True
        )
        version, fits = answer.stdout.decode().split()
    except (OSError, subprocess.CalledProcessError, ValueError) as error:
        raise Usage(f"--python {program} is no Python that runs here: {_why(error)}") from error
    if fits != "True":
        raise Usage(f"--python {program} is Python {version}; user code needs 3.9 or later")
    return Interpreter(path, version)


def _why(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        code = error.returncode
        return f"it ended with exit {code}" if code >= 0 else f"it ended with signal {-code}"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "it did not say its version when it was asked"
