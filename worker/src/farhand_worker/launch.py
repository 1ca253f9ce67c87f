"""What is begun before the agent is even loaded: the warden, the stem of engines, and a look for a runtime.

Each needs a tenth of a second, as the agent does, and the first job waits for the last of them: so they begin
side by side. Whoever launches closes: then nothing that was started here is left. So it is if
this process dies before there is an agent.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from pathlib import Path
from typing import Dict, Optional

from .ahead import Ahead
from .environment import engine_environment, user_environment
from .options import Options
from .planting import Planted, command_of, first_line, has_stem, interpreter_of, second_line
from .runtimes import Runtimes
from .state import StateDirectory
from .trees import become_subreaper
from .warden_process import Start, WardenProcess, order_text

FIRST = 1
"""The number of the stem among the agent's engines."""


class Launched:
    """The warden, its stem where there can be one, and a runtime ahead. An agent takes them over."""

    def __init__(
        self, warden: WardenProcess, stem: Optional[Planted], options: Options, runtimes: Runtimes
    ) -> None:
        self.warden = warden
        self.ahead = Ahead(options, runtimes, self._has_runtime)
        self._stem = stem
        self._sending = threading.Lock()
        self._taken = False

    def take(self) -> Optional[Planted]:
        """The stem, as it is now. From now on the warden's socket is the caller's alone."""
        with self._sending:
            self._taken = True
            return self._stem

    def close(self) -> None:
        """End what was started. Does nothing more once the agent has ended it."""
        self.take()
        self.warden.close()

    def _has_runtime(self, runtime: Path) -> None:
        """Have the stem load it, unless that is another's business by now."""
        with self._sending:
            if self._stem is None or self._taken or not has_stem(runtime):
                return
            self._stem = self._stem._replace(runtime=runtime)
            with contextlib.suppress(OSError):
                self.warden.socket.sendall(
                    order_text("say", engine=self._stem.engine, line=second_line(runtime))
                )


def launch(options: Options, state: StateDirectory) -> Launched:
    """Begin on an opened state directory."""
    become_subreaper()
    environ, _ = user_environment(os.environ, options.pass_env)
    warden = WardenProcess(environ)
    stem = _plant(warden, environ, options, state)
    launched = Launched(warden, stem, options, Runtimes(state.runtimes, options.python))
    launched.ahead.look()
    return launched


def _plant(
    warden: WardenProcess, environ: Dict[str, str], options: Options, state: StateDirectory
) -> Optional[Planted]:
    python = interpreter_of(options.python)
    if python is None:
        return None
    engine = state.engine_id(FIRST)
    # Not the directory of engines, which is made anew: whoever is forked from it goes there by itself.
    start = Start(engine, command_of(options.python), engine_environment(environ, engine), str(state.path))
    output, theirs = os.pipe()
    with contextlib.suppress(OSError):  # it has ended; whoever takes it over sees that, and has another
        _send(warden.socket, order_text("stem", **start._asdict()), theirs)
        warden.socket.sendall(order_text("say", engine=engine, line=first_line()))
    os.close(theirs)
    return Planted(engine, python, output)


def _send(link: socket.socket, text: bytes, fd: int) -> None:
    sent = socket.send_fds(link, [text], [fd])
    link.sendall(text[sent:])
