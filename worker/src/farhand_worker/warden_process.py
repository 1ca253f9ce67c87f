"""A warden's process with the agent's end of its socket, and how an order to it is written."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import Any, Dict, List, Mapping, NamedTuple

_RUN = (
    "import sys; sys.path.append(sys.argv[1].rpartition('/farhand_worker/')[0]); "
    "from farhand_worker.warden import main; main(sys.argv[2:])"
)
ARGUMENTS = ("-I", "-S", "-E", "-c", _RUN, os.path.join(os.path.dirname(__file__), "warden.py"))
"""What has an interpreter run the warden, from a directory or out of a zip; ``--fd N`` follows."""


class Start(NamedTuple):
    """A process to be started: its engine id, command, environment and directory."""

    engine: str
    argv: List[str]
    env: Dict[str, str]
    cwd: str


class WardenProcess:
    """Started at once, with ``environ`` and nothing of the agent's but one end of ``socket``.

    It ends, with all that it has started, when the other end is closed, by `close` or by the agent's death.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.socket, other = socket.socketpair()
        with other:
            self._process = subprocess.Popen(
                [sys.executable, *ARGUMENTS, "--fd", str(other.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                env=dict(environ),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def kill(self) -> None:
        """End it at once; what it had started falls to this process."""
        self._process.kill()
        self.close()

    def close(self) -> None:
        """Have it end everything and itself, and wait for that. May be called again."""
        self.socket.close()
        self._process.wait()


def order_text(what: str, **fields: Any) -> bytes:
    """An order as the warden reads it."""
    return json.dumps({"do": what, **fields}).encode() + b"\n"
