"""A server and workers of their own in temporary directories, as the demo and the benchmarks need them.

They are real processes. Each writes its output to a file; each is ended by its pid, first asked, then
asked again, then killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from ..errors import FarhandError, Unreachable, Usage

READY_S = 60.0
STOP_S = 15.0
_LOOK_S = 0.05
_ENDING = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Program:
    """One process, and the file that its output goes to."""

    name: str
    process: subprocess.Popen[bytes]
    output: Path

    def tail(self, lines: int = 15) -> str:
        """The last lines it wrote."""
        return "\n".join(self.output.read_text(errors="replace").splitlines()[-lines:])

    def stop(self) -> None:
        """End it: asked, asked again, killed. Does nothing once it has ended."""
        for number, patience_s in (
            (signal.SIGTERM, STOP_S / 2),
            (signal.SIGTERM, STOP_S),
            (signal.SIGKILL, None),
        ):
            if self.process.poll() is not None:
                return
            self.process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(patience_s)


@dataclass
class Stage:
    """A server on ``flows`` and its workers, all below ``directory``. Use it as a context manager."""

    directory: Path
    flows: Path
    port: int = 0
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    programs: list[Program] = field(default_factory=list[Program])

    def __post_init__(self) -> None:
        self.port = _free_port(self.port)

    @property
    def home(self) -> Path:
        """The server's home."""
        return self.directory / "server"

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        """The admin token."""
        return (self.home / "admin-token").read_text().strip()

    def start_server(self, *options: str) -> Program:
        """Start ``farhand serve``; whoever asks it must wait until it answers."""
        call = ("serve", str(self.flows), "--home", str(self.home), "--port", str(self.port), "--no-open")
        return self._start("server", [*_FARHAND, *call, *options])

    def start_worker(self, name: str, token: str, *options: str) -> Program:
        """Start a worker without a directory of its own: the code comes to it by digest."""
        directory = self.directory / name
        directory.mkdir(mode=0o700)
        secret = directory / "token"
        secret.touch(mode=0o600)
        secret.write_text(token)
        call = ("--url", self.url, "--token-file", str(secret), "--state-dir", str(directory / "state"))
        return self._start(name, [sys.executable, "-m", "farhand_worker", *call, *options], directory)

    def wait(self, what: str, holds: Callable[[], bool], timeout_s: float = READY_S) -> None:
        """Look until it holds. Raises `FarhandError` when a process ends meanwhile, or the time is up."""
        deadline = time.monotonic() + timeout_s
        while not _holds(holds):
            for program in self.programs:
                if program.process.poll() is not None:
                    code = program.process.returncode
                    raise FarhandError(f"{program.name} ended with {code} before {what}:\n{program.tail()}")
            if time.monotonic() > deadline:
                last = "\n".join(program.tail() for program in self.programs)
                raise FarhandError(f"not within {timeout_s:.0f} s: {what}\n{last}")
            time.sleep(_LOOK_S)

    def close(self) -> None:
        """End every process, the last one started first. A Ctrl-C meanwhile kills what is left."""
        try:
            while self.programs:
                self.programs[-1].stop()
                self.programs.pop()
        except KeyboardInterrupt:
            for program in self.programs:
                program.process.kill()
            raise

    def __enter__(self) -> Stage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, name: str, call: Sequence[str], cwd: Path | None = None) -> Program:
        output = self.directory / f"{name}.log"
        with output.open("wb") as sink, _undisturbed():
            process = subprocess.Popen(
                call,
                cwd=cwd or self.directory,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=_environment() | dict(self.environment),
                start_new_session=True,  # so that Ctrl-C reaches only us, and we end them in order
            )
            program = Program(name, process, output)
            self.programs.append(program)
        return program


_FARHAND = (sys.executable, "-c", "from farhand.cli import main; main()")


@contextlib.contextmanager
def _undisturbed() -> Generator[None, None, None]:
    """Hold signals back meanwhile, so that no process is started and not known."""
    held: list[int] = []
    before = {number: signal.signal(number, lambda n, _: held.append(n)) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for number in held[:1]:
        signal.raise_signal(number)


def _holds(holds: Callable[[], bool]) -> bool:
    """Whether it holds; while no server answers, it does not."""
    try:
        return holds()
    except Unreachable:
        return False


def _environment() -> dict[str, str]:
    """Ours, without settings of farhand that are meant for another server."""
    return {name: value for name, value in os.environ.items() if not name.startswith("FARHAND_")}


def _free_port(wanted: int) -> int:
    """The port that is wanted, or any when that is 0. Raises `Usage` when it is taken: its holder would
    be asked in place of our server."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
            probe.listen()
        except OSError as error:
            raise Usage(
                f"port {wanted} cannot be used: {error.strerror}; choose another with --port"
            ) from error
        port: int = probe.getsockname()[1]
        return port
