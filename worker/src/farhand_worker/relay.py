"""``farhand-worker relay``: on a cluster's login node, lets workers in that have no route to their server.

The server starts it by ssh and holds it: what workers send comes out of standard output, what they are sent
goes in at standard input, and it ends with either. TLS goes through it from end to end: it sees no token, and
has no key. Where it listens it writes to a file that all nodes see; workers read that before every dial.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import sys
from pathlib import Path
from typing import List, Set

from .multiplex import Broken, Multiplex, join

COMMAND = "relay"


def parser() -> argparse.ArgumentParser:
    """Its command line; a server writes it."""
    made = argparse.ArgumentParser(
        f"farhand-worker {COMMAND}", description="Lets workers in that have no route to their server."
    )
    made.add_argument("--name", required=True, help="what the file with the address is called")
    made.add_argument("--host", default="", help="by which name workers reach this machine")
    made.add_argument("--path", default="", help="the base path of the server")
    return made


def relay(arguments: List[str]) -> int:
    """Run until the server's end of the connection is gone."""
    given = parser().parse_args(arguments)
    return asyncio.run(_Relay(given.name, given.host or socket.gethostname(), given.path).run())


class _Relay:
    def __init__(self, name: str, host: str, path: str) -> None:
        self._file = Path.home() / ".farhand" / f"relay-{name}.url"
        self._host = host
        self._path = path
        self._joined: Set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        reader, writer = await _standard_streams()
        self._multiplex = Multiplex(reader, writer)
        listener = await asyncio.start_server(self._accept, "0.0.0.0", 0)
        port = listener.sockets[0].getsockname()[1]
        host = f"[{self._host}]" if ":" in self._host else self._host
        url = f"https://{host}:{port}{self._path}"
        self._write(url)
        try:
            await self._multiplex.greet(json.dumps({"url": url, "file": str(self._file)}).encode())
            await self._multiplex.run()
        except Broken:
            return 0
        finally:
            listener.close()
            for task in self._joined:
                task.cancel()
            await asyncio.gather(*self._joined, return_exceptions=True)
            self._remove(url)
        return 0

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


async def _standard_streams() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    )
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
