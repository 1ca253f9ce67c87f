"""``farhand-worker relay``: on a cluster's login node, lets workers in that have no route to their server.

The server starts it by ssh and holds it: what workers send comes out of standard output, what they are sent
goes in at standard input, and it ends with either. TLS goes through it from end to end: it sees no token, and
has no key. It listens on the port that it had before, which workers were told when they were asked for; a
relay of the same name that is left there gives that up. Where it listens it also writes to a file: workers
that see it read it before every dial, and so find a relay that had to go elsewhere.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import sys
import time
from pathlib import Path
from typing import List, Set

from .multiplex import Broken, Multiplex, join
from .trees import LINUX, parents

_COMMAND = "relay"
PORT_TAKEN = 4
"""The exit code when another program has the port."""

_PORTS = range(20_000, 30_000)
"""Where a port is chosen from: below those that kernels give to connections, which would be in the way."""

_TRIED = 50
_END_S = 3.0


def parser() -> argparse.ArgumentParser:
    """Its command line; a server writes it."""
    made = argparse.ArgumentParser(
        f"farhand-worker {_COMMAND}", description="Lets workers in that have no route to their server."
    )
    made.add_argument("--name", required=True, help="what the file with the address is called")
    made.add_argument("--host", default="", help="by which name workers reach this machine")
    made.add_argument("--port", default=0, type=int, help="where to listen (default: a free port)")
    made.add_argument("--path", default="", help="the base path of the server")
    return made


def relay(arguments: List[str]) -> int:
    """Run until the server's end of the connection is gone."""
    given = parser().parse_args(arguments)
    end_predecessors(given.name)
    return asyncio.run(_Relay(given.name, given.host or socket.gethostname(), given.port, given.path).run())


class _Relay:
    def __init__(self, name: str, host: str, port: int, path: str) -> None:
        self._file = Path.home() / ".farhand" / f"relay-{name}.url"
        self._host = host
        self._ports = [port] if port else [*random.sample(_PORTS, _TRIED), 0]
        self._path = path
        self._joined: Set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        reader, writer = await _standard_streams()
        self._multiplex = Multiplex(reader, writer)
        try:
            listener = await self._listen()
        except OSError as error:
            why = os.strerror(error.errno or 0)
            sys.stderr.write(f"the relay cannot listen on port {self._ports[-1]}: {why}\n")
            return PORT_TAKEN
        port = listener.sockets[0].getsockname()[1]
        host = f"[{self._host}]" if ":" in self._host else self._host
        url = f"https://{host}:{port}{self._path}"
        with contextlib.suppress(OSError):  # a home that is full, or may not be written, costs only this
            self._write(url)
        try:
            await self._multiplex.greet(json.dumps({"url": url, "file": str(self._file)}).encode())
            await self._multiplex.run()
        except Broken:
            return 0
        finally:
            self._remove(url)  # before the port is free: the next relay may write the same
            listener.close()
            for task in self._joined:
                task.cancel()
            await asyncio.gather(*self._joined, return_exceptions=True)
        return 0

    async def _listen(self) -> asyncio.Server:
        for port in self._ports[:-1]:
            with contextlib.suppress(OSError):
                return await asyncio.start_server(self._accept, "0.0.0.0", port)
        return await asyncio.start_server(self._accept, "0.0.0.0", self._ports[-1])

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._joined.add(task)
            task.add_done_callback(self._joined.discard)
        connection = writer.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(Broken, ConnectionError, asyncio.CancelledError):
            stream = await self._multiplex.open()
            try:
                await join(stream, reader, writer)
            finally:
                self._multiplex.forget(stream)

    def _write(self, url: str) -> None:
        self._file.parent.mkdir(mode=0o700, exist_ok=True)
        new = self._file.with_suffix(f".{os.getpid()}")
        new.write_text(url)
        new.replace(self._file)

    def _remove(self, url: str) -> None:
        """Another relay may have taken this one's place by now."""
        with contextlib.suppress(OSError):
            if self._file.read_text() == url:
                self._file.unlink()


def end_predecessors(name: str) -> None:
    """End relays of this name that this user has here: their connections are dead, and nobody told them."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + _END_S
        left = _relays(name)
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        while left and _relays(name) and time.monotonic() < deadline:
            time.sleep(0.02)


def _relays(name: str) -> List[int]:
    """The processes of this user that are relays of this name, but for this one and what it runs under."""
    if not LINUX:
        return []  # nothing is known of what other processes are
    above = parents()
    own, pid = {os.getpid()}, os.getppid()
    while pid > 1 and pid not in own:
        own.add(pid)
        pid = above.get(pid, 0)
    return [pid for pid in above if pid not in own and _is_relay(pid, name)]


def _is_relay(pid: int, name: str) -> bool:
    with contextlib.suppress(OSError):
        path = Path(f"/proc/{pid}")
        words = path.joinpath("cmdline").read_bytes().decode(errors="replace").split("\0")
        mine = path.stat().st_uid == os.getuid()
        return mine and any(words[n : n + 3] == [_COMMAND, "--name", name] for n in range(len(words)))
    return False


async def _standard_streams() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    )
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
