"""Carries workers from a login node to this server: one ssh connection, held for as long as the server lives.

On the other end runs ``farhand-worker relay``, which compute nodes dial. What they send comes out here as it
is, TLS and all, and goes to this server's own port; where that speaks no TLS, it is unwrapped here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shlex
import signal
import ssl
import tempfile
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from farhand_worker.multiplex import CHUNK_BYTES, Broken, Multiplex, Stream, join
from farhand_worker.racing import until_one_ends
from farhand_worker.relay import PORT_TAKEN

from ..engine.service import Service, Wakeup
from .config import Settings
from .processes import environment
from .slurm.parsing import complaint

log = logging.getLogger("farhand")

_GREETING_S = 30.0
_END_S = 3.0
_AGAIN_S, _AGAIN_S_MAX = 1.0, 30.0
_STDERR_BYTES = 64 * 1024
_TAKEN_MAX = 3
"""So often in a row another program may have the relay's port before another port is taken."""


@dataclass(frozen=True, slots=True)
class Home:
    """Where carried workers belong: this server's port, its base path, and how it is known behind a relay.

    ``tls`` unwraps what comes, None where the port speaks TLS itself; ``admit`` is told the names by which
    workers call the server then.
    """

    host: str
    port: int
    base_path: str
    name: str
    pin: str
    tls: ssl.SSLContext | None
    admit: Callable[[str], None]


class Carrier(Service):
    """One relay. ``url_file`` is where machines that see it find its address, empty while there is none.

    Its port is kept in ``kept``: machines that see no file know the relay by that, also after a restart.
    """

    name = "carrier"

    def __init__(self, settings: Settings, home: Home, say: Callable[[str], None], kept: Path) -> None:
        super().__init__()
        self._kept = kept
        self._port = settings.relay_port or _read_port(kept)
        self._taken = 0
        self._again = Wakeup()
        self._tried = asyncio.Event()
        self._settings = settings
        self._home = home
        self._say = say
        self.pin = home.pin
        self.url = self.url_file = ""
        self.trouble = "the relay has not begun yet"

    def command(self) -> list[str]:
        """The ssh that holds the relay."""
        settings, home = self._settings, self._home
        options = ["BatchMode=yes", *settings.ssh_options, "ControlPath=none", "ConnectTimeout=10"]
        options += ["ServerAliveInterval=15", "ServerAliveCountMax=3"]
        key = ["-i", settings.ssh_key, "-o", "IdentitiesOnly=yes"] if settings.ssh_key else []
        relay = [*settings.relay, "relay", "--name", f"{settings.name}-{home.name}"]
        relay += ["--host", settings.relay_host] if settings.relay_host else []
        relay += ["--port", str(self._port)] if self._port else []
        relay += ["--path", home.base_path] if home.base_path else []
        flags = [word for option in options for word in ("-o", option)]
        return ["ssh", "-T", *flags, *key, settings.login, shlex.join(relay)]

    async def try_now(self) -> None:
        """Do not wait for the next try; until that has come to something."""
        self._tried.clear()
        self._again.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._tried.wait(), _GREETING_S)

    def _keep(self, port: int) -> None:
        """The relay is to listen there from now on; 0: wherever it can."""
        if port != self._port:
            self._port = port
            try:
                self._kept.write_text(f"{port}\n")
            except OSError as error:
                log.error("the port of the relay could not be kept in %s: %s", self._kept, error)

    def _note_end(self, code: int | None) -> None:
        """A port that another program has is waited for a little; one that was set, for ever."""
        self._taken = self._taken + 1 if code == PORT_TAKEN else 0
        if self._taken >= _TAKEN_MAX and not self._settings.relay_port:
            log.warning("provisioner %s: its relay takes another port", self._settings.name)
            self._keep(0)
            self._taken = 0

    async def _work(self) -> None:
        failures = 0
        async with self._unwrapping() as port:
            while True:
                self.trouble = await self._hold(port)
                failures = 0 if self.url_file else failures + 1
                self.url_file = ""
                self._say(f"the relay on {self._settings.login} is away: {self.trouble}")
                self._tried.set()
                await self._again.wait(min(_AGAIN_S_MAX, _AGAIN_S * 2 ** min(failures, 8)))

    async def _hold(self, port: int) -> str:
        """One connection, from its beginning to its end; why that came."""
        with tempfile.TemporaryFile() as errors:
            try:
                process = await asyncio.create_subprocess_exec(
                    *self.command(),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=errors,
                    env=environment(),
                    start_new_session=True,
                )
            except OSError as error:
                return f"ssh cannot be started: {error}"
            try:
                await self._carry(process, port)
            except TimeoutError:
                return f"it did not begin within {_GREETING_S:g} s; {_words(errors)}"
            except Broken as error:
                return _words(errors) or str(error)
            finally:
                await _end(process)
                self._note_end(process.returncode)
            return "it ended"

    async def _carry(self, process: asyncio.subprocess.Process, port: int) -> None:
        assert process.stdout is not None
        assert process.stdin is not None

        async def opened(stream: Stream) -> None:
            host, number = ("127.0.0.1", port) if port else (self._home.host, self._home.port)
            try:
                reader, writer = await asyncio.open_connection(host, number)
            except OSError as error:
                log.warning("a worker from the relay was not let through: %s", error)
                await stream.end()
                return
            await join(stream, reader, writer)

        multiplex = Multiplex(process.stdout, process.stdin, opened)
        hello = await asyncio.wait_for(multiplex.greeted(), _GREETING_S)
        self.url, self.url_file = _places(hello)
        self._home.admit(self.url)
        self._keep(urlsplit(self.url).port or 0)
        self.trouble = ""
        self._tried.set()
        self._say("")
        log.info("provisioner %s: workers come by %s", self._settings.name, self.url)
        await multiplex.run()

    @contextlib.asynccontextmanager
    async def _unwrapping(self) -> AsyncGenerator[int]:
        """The port to which what comes is handed: one of our own that takes TLS off, or 0 for none."""
        if self._home.tls is None:
            yield 0
            return
        server = await asyncio.start_server(self._unwrap, "127.0.0.1", 0, ssl=self._home.tls)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()

    async def _unwrap(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner = await asyncio.open_connection(self._home.host, self._home.port)
        except OSError:
            writer.close()
            return
        try:
            await until_one_ends(_copy(reader, inner[1]), _copy(inner[0], writer))
        finally:
            for end in (writer, inner[1]):
                end.close()


def _places(hello: bytes) -> tuple[str, str]:
    """Where a relay listens, and the file that says so. Raises `Broken`."""
    try:
        told = json.loads(hello)
        return str(told["url"]), str(told["file"])
    except (ValueError, KeyError, TypeError) as error:
        raise Broken(f"what it says of itself cannot be read: {error!r}") from error


def _read_port(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK_BYTES):
        writer.write(data)
        await writer.drain()


async def _end(process: asyncio.subprocess.Process) -> None:
    """The relay ends when its input does; what does not is killed."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), _END_S)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _words(errors: IO[bytes]) -> str:
    return complaint(os.pread(errors.fileno(), _STDERR_BYTES, 0).decode(errors="replace"))
