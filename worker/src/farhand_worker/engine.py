"""An engine as the agent sees it: a process that executes one job at a time, and whoever uses it now."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Protocol, Tuple

from .channel import Channel
from .masking import Masker
from .moments import Moment
from .output import LineReader

BELL_S = 0.05
"""How long a bell may wait for more to report; an urgent one does not."""

IDLE_S = 60.0
"""How long an engine is kept warm without a job."""

_READ_BYTES = 64 * 1024
_DRAIN_BYTES_MAX = 4 * 1024 * 1024


class Key(NamedTuple):
    """What one engine is good for: jobs of the same bundle, runtime, kind of deadline and set of secrets.

    And of the same size: ``cpus`` and ``devices`` are told to it before it starts, None where the job was
    given none. ``isolated`` is the one job of an engine that is not shared.
    """

    runtime: str
    bundle: str
    strict: bool
    secrets: Tuple[str, ...] = ()
    isolated: str = ""
    cpus: Optional[int] = None
    devices: Optional[Tuple[str, ...]] = None


class Ended(NamedTuple):
    """How an engine's process ended. ``killed`` says who killed it, if it was farhand: deadline, asked."""

    code: Optional[int]
    signal: Optional[int]
    killed: Optional[str]
    error: Optional[str] = None

    @property
    def text(self) -> str:
        """The end in words."""
        if self.error is not None:
            return self.error
        if self.signal is None:
            return f"exit {self.code}"
        oom = ", possibly out of memory" if self.signal == 9 and self.killed is None else ""
        return f"signal {self.signal}{oom}"


class Command(NamedTuple):
    """The process of a service: what is started, where, and with what in its environment."""

    name: str
    argv: List[str]
    environ: Dict[str, str]
    cwd: Path
    strict: bool = False
    cpus: Optional[int] = None
    devices: Optional[Tuple[str, ...]] = None


class Occupant(Protocol):
    """What an engine reports to while it executes a job."""

    def frame(self, header: Dict[str, Any]) -> None:
        """A frame from the engine."""

    def lines(self, lines: List[str]) -> None:
        """Output of the engine's processes, outside of Python's own streams."""

    def engine_ended(self, end: Ended) -> None:
        """The process and everything it had started are gone."""


class Engine:
    """One engine process: its channel, its output pipe and whoever uses it now."""

    def __init__(self, identity: str, key: Key, runtime: Path) -> None:
        self.id = identity
        self.key = key
        self.runtime = runtime
        self.pid: Optional[int] = None
        self.jobs = 0
        self.environment = ""
        self.paths: List[str] = []
        self.end: Optional[Ended] = None
        self.doomed = False
        """Whether its kill has been ordered; until that comes it may seem to be well."""
        self.gone = asyncio.Event()
        self.begun = asyncio.Event()
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.occupant: Optional[Occupant] = None
        self.timer: Optional[asyncio.TimerHandle] = None
        self.bell = Moment(BELL_S)
        self.patience = Moment(IDLE_S)
        """What becomes of it when it comes to no end of something, or when nothing comes for it."""
        self._output = LineReader()
        self._pipe = -1
        self.channel = Channel(self._frame, lambda: None)

    @property
    def is_ready(self) -> bool:
        """Whether it can be given a job."""
        return self.ready.done() and self.end is None and not self.doomed

    def hide(self, value: str) -> None:
        """Mask ``value`` in all that comes out of this engine from now on."""
        if self._output.mask is None:
            self._output.mask = Masker()
        self._output.mask.add(value)

    def attach_output(self, pipe: int) -> None:
        """Read the engine's output from ``pipe`` from now on."""
        self._pipe = pipe
        os.set_blocking(pipe, False)
        asyncio.get_running_loop().add_reader(pipe, self._read_output)

    def drain_output(self) -> None:
        """Read what is in the pipe now, and end the last line."""
        total = 0
        while total < _DRAIN_BYTES_MAX:
            size = self._read_output()
            if size == 0:
                break
            total += size
        if lines := self._output.close():
            self._pass_on(lines)

    def finish(self, end: Ended) -> None:
        """The process is gone: read the rest of its output and tell its occupant."""
        self.end = end
        self.gone.set()
        self.begun.set()
        try:
            self.drain_output()
            self._close_pipe()
            self.channel.close()
        finally:  # whatever came of its last lines: its occupant waits for this
            self.bell.close()
            self.patience.close()
            if self.timer is not None:
                self.timer.cancel()
            if not self.ready.done():
                self.ready.set_result(None)
            occupant, self.occupant = self.occupant, None
            if occupant is not None:
                occupant.engine_ended(end)

    def _frame(self, header: Dict[str, Any]) -> None:
        if header.get("type") == "ready":
            self.environment = str(header.get("environment") or "")
            self.paths = [str(path) for path in header.get("paths") or ()]
            if not self.ready.done():
                self.ready.set_result(None)
        elif self.occupant is not None:
            self.occupant.frame(header)

    def _read_output(self) -> int:
        if self._pipe < 0:
            return 0
        try:
            chunk = os.read(self._pipe, _READ_BYTES)
        except BlockingIOError:
            return 0
        if not chunk:
            self._close_pipe()
            return 0
        self._pass_on(self._output.feed(chunk))
        return len(chunk)

    def _pass_on(self, lines: List[str]) -> None:
        if lines and self.occupant is not None:
            self.occupant.lines(lines)

    def _close_pipe(self) -> None:
        if self._pipe >= 0:
            asyncio.get_running_loop().remove_reader(self._pipe)
            os.close(self._pipe)
            self._pipe = -1
