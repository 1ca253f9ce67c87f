"""What makes a new process an engine or a stem, between fork and exec: part of the warden."""

from __future__ import annotations

import fcntl
import os
import signal
from typing import Any, Dict

from .trees import LIBC, LINUX, set_subreaper

CHANNEL_FD = 3
"""Where an engine finds its channel."""

_PR_SET_PDEATHSIG = 1
_HANDLED = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGPIPE, signal.SIGCHLD,
)  # fmt: skip
"""What means something to the warden, and nothing to an engine."""


def fork(message: Dict[str, Any], channel: int, output: int, adopts: bool = True) -> int:
    """Start an engine or a stem; its process id."""
    warden = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become_engine(message, warden, channel, output, adopts)
    return pid


def _become_engine(message: Dict[str, Any], warden: int, channel: int, output: int, adopts: bool) -> None:
    """Between fork and exec: what makes an engine an engine, whatever its program does."""
    try:
        os.setsid()
        if LINUX:
            LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
            set_subreaper(adopts)
        if os.getppid() != warden:
            os._exit(125)  # the warden ended before the death signal was set
        channel = fcntl.fcntl(channel, fcntl.F_DUPFD_CLOEXEC, 10)
        output = fcntl.fcntl(output, fcntl.F_DUPFD_CLOEXEC, 10)
        null = fcntl.fcntl(os.open(os.devnull, os.O_RDONLY), fcntl.F_DUPFD_CLOEXEC, 10)
        for source, target in ((null, 0), (output, 1), (output, 2), (channel, CHANNEL_FD)):
            os.dup2(source, target)
        for number in _HANDLED:
            signal.signal(number, signal.SIG_DFL)
        os.chdir(message["cwd"])
        os.execve(message["argv"][0], message["argv"], message["env"])
    except BaseException as error:  # noqa: BLE001 - nothing may return into the warden's code
        os.write(2, f"cannot start {message['argv'][0]}: {error}\n".encode())
    finally:
        os._exit(127)
