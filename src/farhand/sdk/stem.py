"""The stem: a blank process that engines are forked from, so that none pays for what all of them load.

It has loaded what an engine loads before any user code, and nothing else: no site packages, no project, no
thread. Each order brings the two descriptors of a new engine. A process in between forks the engine, tells
the warden of it and ends; so the engine becomes the warden's child, as if the warden had forked it, and
is killed, waited for and told of in the same way. Linux only: elsewhere orphans do not come to the warden.

Warden → stem: ``{engine, cwd, env}`` a line, with the descriptors of channel and output; ``env`` is what
differs from the stem's own, null what is not there. Stem → warden: ``{engine, pid | error}``, before the
engine is the warden's child.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
import time
from typing import Any, Dict, List, Optional

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_GET_NAME = 16
_PR_SET_CHILD_SUBREAPER = 36
_FDS = 2
_READ_BYTES = 65536
_TOLD = b"1"
_MOMENT_S = 0.0005
_NOT_WANTED = 125
"""The exit code of an engine that the warden does not know of, or has not lived to know."""

NAME = b"farhand-stem"
"""What it is called by ``top`` and ``ps -e``; engines have the interpreter's name, as ever."""

_prctl = ctypes.CDLL(None).prctl


class Stem:
    """Takes orders at a socket. ``serve()`` returns in each engine, and nowhere else."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._link = socket.socket(fileno=fd)
        self._link.set_inheritable(False)
        self._warden = os.getppid()
        self._read = b""
        self._fds: List[int] = []
        self._name = ctypes.create_string_buffer(16)
        _prctl(_PR_GET_NAME, self._name, 0, 0, 0)
        _prctl(_PR_SET_NAME, NAME, 0, 0, 0)

    def serve(self) -> None:
        """Fork an engine for each order until the warden closes the socket."""
        while True:
            order = self._order()
            channel, output = self._fds[:_FDS]
            del self._fds[:_FDS]
            if self._fork(order, channel, output):
                return
            os.close(channel)
            os.close(output)

    def _order(self) -> Dict[str, Any]:
        while b"\n" not in self._read:
            text, fds, _, _ = socket.recv_fds(self._link, _READ_BYTES, 64)
            if not text:
                os._exit(0)
            for fd in fds:
                os.set_inheritable(fd, False)  # by a flag, recv_fds does not do it
            self._read += text
            self._fds += fds
        line, self._read = self._read.split(b"\n", 1)
        return json.loads(line)

    def _fork(self, order: Dict[str, Any], channel: int, output: int) -> bool:
        """Whether this process is the engine now."""
        told, tell = os.pipe()
        between = self._fork_once(order)
        if between == 0:
            between = self._go_between(order, tell)
            os.close(tell)
            _wait_for_the_end(between, told)
            self._become_engine(order, channel, output)
            return True
        os.close(told)
        if between > 0:
            os.waitpid(between, 0)
        os.close(tell)  # only now: to the engine it says that its parent is gone
        return False

    def _fork_once(self, order: Dict[str, Any]) -> int:
        try:
            return os.fork()
        except OSError as error:
            self._say(order, error=str(error))
            return -1

    def _go_between(self, order: Dict[str, Any], tell: int) -> int:
        """Fork the engine, say so, and end; returns in the engine alone, the id of what was between."""
        between, pid = os.getpid(), -1
        try:
            pid = self._fork_once(order)
            if pid > 0:
                self._say(order, pid=pid)
                os.write(tell, _TOLD)
        finally:
            if pid:
                os._exit(0)
        return between

    def _become_engine(self, order: Dict[str, Any], channel: int, output: int) -> None:
        """What the warden does between fork and exec, now that it knows this process and is its parent."""
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        _prctl(_PR_SET_NAME, self._name, 0, 0, 0)
        if os.getppid() != self._warden:
            os._exit(_NOT_WANTED)
        self._link.detach()
        for source, target in ((output, 1), (output, 2), (channel, self._fd)):
            os.dup2(source, target)
        os.close(channel)
        os.close(output)
        try:
            os.chdir(order["cwd"])
        except OSError as error:
            os.write(2, f"cannot start {sys.executable}: {error}\n".encode())
            os._exit(127)
        _change_environment(order["env"])

    def _say(self, order: Dict[str, Any], **what: Any) -> None:
        self._link.sendall(json.dumps({"engine": order["engine"], **what}).encode() + b"\n")


def _wait_for_the_end(between: int, told: int) -> None:
    """Wait until the parent has told of this engine and is gone; what was not told of ends here."""
    if os.read(told, 1) != _TOLD or os.read(told, 1):
        os._exit(_NOT_WANTED)
    os.close(told)
    while os.getppid() == between:  # the pipe of a process is closed a moment before it has ended
        time.sleep(_MOMENT_S)


def _change_environment(changes: Dict[str, Optional[str]]) -> None:
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
