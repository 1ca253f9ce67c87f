"""What is started before the agent is even loaded: the warden, and the stem of its engines.

Each of the three needs a tenth of a second to load what it needs, and the first job waits for the last of
them. They load side by side. Whoever launches closes: then nothing that was started here is left. So it is if
this process dies before there is an agent.
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import NamedTuple, Optional

from .environment import engine_environment, user_environment
from .options import Options
from .planting import Interpreter, command_of, first_line, interpreter_of
from .state import StateDirectory
from .trees import become_subreaper
from .warden_process import Start, WardenProcess, order_text

FIRST = 1
"""The number of the stem among the agent's engines."""


class Planted(NamedTuple):
    """A stem that the warden was told to start: of which interpreter, and where its output is to be read."""

    python: Interpreter
    output: int


class Launched(NamedTuple):
    """The warden, and the stem where there can be one. An agent takes both over."""

    warden: WardenProcess
    stem: Optional[Planted]

    def close(self) -> None:
        """End what was started. Does nothing more once the agent has ended it."""
        self.warden.close()


def launch(options: Options, state: StateDirectory) -> Launched:
    """Start them on an opened state directory."""
    become_subreaper()
    environ, _ = user_environment(os.environ, options.pass_env)
    warden = WardenProcess(environ)
    python = interpreter_of(options.python)
    if python is None:
        return Launched(warden, None)
    engine = state.engine_id(FIRST)
    # Not the directory of engines, which is made anew: whoever is forked from it goes there by itself.
    start = Start(engine, command_of(options.python), engine_environment(environ, engine), str(state.path))
    output, theirs = os.pipe()
    with contextlib.suppress(OSError):  # it has ended; whoever takes it over sees that, and has another
        _send(warden.socket, order_text("stem", **start._asdict()), theirs)
        warden.socket.sendall(order_text("say", engine=engine, line=first_line()))
    os.close(theirs)
    return Launched(warden, Planted(python, output))


def _send(link: socket.socket, text: bytes, fd: int) -> None:
    sent = socket.send_fds(link, [text], [fd])
    link.sendall(text[sent:])
