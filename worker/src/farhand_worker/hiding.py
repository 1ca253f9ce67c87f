"""A token kept from the eyes of others.

What a process was started with, its arguments and its first environment, stays readable for as long as it
lives, by user code too. So a program that was given its token there starts itself again without it and
hands it to itself through a pipe.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence

VARIABLE = "FARHAND_WORKER_TOKEN"
_FLAG = "--token"
BYTES_MAX = 16 * 1024


class Exposed(NamedTuple):
    """How the program must be started again, and the token that was there to see, if it is the one to use."""

    arguments: List[str]
    environ: Dict[str, str]
    token: Optional[str]


def exposed(arguments: Sequence[str], environ: Mapping[str, str]) -> Optional[Exposed]:
    """What hides a token in ``arguments`` or ``environ``; None when there is none."""
    kept: List[str] = []
    flagged: Optional[str] = None
    following = iter(arguments)
    for argument in following:
        if argument == _FLAG:
            flagged = next(following, None)
        elif argument.startswith(_FLAG + "="):
            flagged = argument[len(_FLAG) + 1 :]
        else:
            kept.append(argument)
    if flagged is None and VARIABLE not in environ:
        return None
    elsewhere = any(a.partition("=")[0] in ("--token-file", "--token-fd") for a in kept)
    token = flagged if flagged is not None else (None if elsewhere else environ[VARIABLE])
    return Exposed(kept, {name: value for name, value in environ.items() if name != VARIABLE}, token)


def hide(arguments: Sequence[str]) -> None:
    """Start this program again without its token in sight; return when there is none.

    ``arguments`` are the worker's, the last words of the command line.
    """
    whole = _command_line()
    count = len(whole) - len(arguments)
    found = exposed(arguments, os.environ)
    if found is None or len((found.token or "").encode()) > BYTES_MAX:
        return
    kept = found.arguments
    if found.token is not None:
        reading, writing = os.pipe()
        os.write(writing, found.token.encode())
        os.close(writing)
        os.set_inheritable(reading, True)
        kept = [*kept, "--token-fd", str(reading)]
    os.execve(sys.executable, [*whole[:count], *kept], found.environ)


def _command_line() -> List[str]:
    """The words this process was started with, those of the interpreter included."""
    told: Optional[List[str]] = getattr(sys, "orig_argv", None)  # from Python 3.10
    if told:
        return list(told)
    try:
        return Path("/proc/self/cmdline").read_bytes().decode(errors="surrogateescape").split("\0")[:-1]
    except OSError:
        return [sys.executable, "-m", "farhand_worker", *sys.argv[1:]]
