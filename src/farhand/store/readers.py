"""A few threads that only read, each on a connection of its own that cannot write or checkpoint."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from ..errors import StoreClosed
from .guard import Connection

T = TypeVar("T")

READERS = 3
"""Reads are short; more threads would only compete with the event loop."""


class Readers:
    """Runs read operations, each in one snapshot of the store."""

    def __init__(self, path: Path) -> None:
        self._uri = f"file:{quote(str(path))}?mode=ro"
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._closed = False
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="farhand-store-reader")

    async def run(self, operation: Callable[[Connection], T]) -> T:
        """What ``operation`` returns."""
        if self._closed:
            raise StoreClosed
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, operation)

    async def close(self) -> None:
        """Wait for the reads under way and close their connections."""
        self._closed = True
        await asyncio.to_thread(self._pool.shutdown)
        while self._connections:
            self._connections.pop().close()

    def _read(self, operation: Callable[[Connection], T]) -> T:
        connection, guarded = self._own()
        connection.execute("BEGIN")
        try:
            return operation(guarded)
        finally:
            connection.rollback()  # an open snapshot would hold the checkpoint

    def _own(self) -> tuple[sqlite3.Connection, Connection]:
        own: tuple[sqlite3.Connection, Connection] | None = getattr(self._local, "own", None)
        if own is None:
            connection = sqlite3.connect(
                self._uri, uri=True, isolation_level=None, check_same_thread=False, timeout=5.0
            )
            connection.execute("PRAGMA query_only = ON")
            self._connections.append(connection)
            self._local.own = own = (connection, Connection(connection))
        return own
