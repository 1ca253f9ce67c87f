"""What the measurements are compared to: things this machine does without farhand."""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve


@dataclass(frozen=True)
class References:
    """Medians in seconds."""

    python_s: float
    calls_s: float
    commit_s: float
    round_trip_s: float


def measure(directory: Path) -> References:
    """All references; the SQLite file is written to ``directory``, the disk that the server will use."""
    return References(
        python_s=statistics.median(_python(20)),
        calls_s=statistics.median(_calls(100)),
        commit_s=statistics.median(_commits(directory / "reference.db", 200)),
        round_trip_s=statistics.median(asyncio.run(_round_trips(500))),
    )


def _python(count: int) -> Iterator[float]:
    """Starting an interpreter that does nothing."""
    for _ in range(count):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        yield time.perf_counter() - began


def _calls(count: int) -> Iterator[float]:
    """Calling a function that adds two numbers 10,000 times: how fast this interpreter is, here and now."""
    total = 0
    for _ in range(count):
        began = time.perf_counter()
        for number in range(10_000):
            total = _sum(total, number)
        yield time.perf_counter() - began


def _sum(one: int, other: int) -> int:
    return one + other


def _commits(path: Path, count: int) -> list[float]:
    """Inserting one row and committing it with synchronous=FULL, in WAL mode."""
    times: list[float] = []
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, text TEXT)")
        for _ in range(count):
            began = time.perf_counter()
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO rows (text) VALUES (?)", ("x" * 200,))
            connection.execute("COMMIT")
            times.append(time.perf_counter() - began)
    return times


async def _round_trips(count: int) -> list[float]:
    """Sending a small message over a loopback websocket and getting it back, both ends in this process."""

    async def echo(connection: ServerConnection) -> None:
        async for message in connection:
            await connection.send(message)

    times: list[float] = []
    async with serve(echo, "127.0.0.1", 0, compression=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with connect(f"ws://127.0.0.1:{port}", compression=None) as connection:
            for _ in range(count):
                began = time.perf_counter()
                await connection.send('{"type":"heartbeat","n":1}')
                await connection.recv()
                times.append(time.perf_counter() - began)
    return times
