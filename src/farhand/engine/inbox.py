"""Follows the journals of scripts. A script never opens the store; it appends to a file of its own.

`<home>/inbox/<run>.jsonl` holds one record a line, numbered by line, and is locked by the script for as long
as it lives. What is complete is imported by (run, number), so that reading a line twice records it once. A
journal whose lock is free and whose last record is no result belongs to a script that died.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import re
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farhand_worker.protocol import ProtocolViolation

from ..blobs import Blobs
from ..errors import FarhandError
from ..store import Store
from ..store.runs import Wanted
from .bus import Bus, Notice
from .service import Service, Wakeup

log = logging.getLogger("farhand")

LOOK_S = 1.0
_CALLED_MAX = 50
_CHUNK_BYTES = 1024 * 1024
_NAME = re.compile(r"([a-z0-9]{8,64})\.jsonl")
_DIED = "the script ended without a word; it was killed, or its machine was"


@dataclass(slots=True)
class Journal:
    """A journal being followed: how far it was read, and the number of its last imported line."""

    run: str
    path: Path
    offset: int = 0
    seq: int = 0
    over: bool = False
    broken: str = ""


class Inbox(Service):
    """Imports journals: at a datagram from a script, and at a look every second."""

    name = "inbox"

    def __init__(self, home: Path, store: Store, blobs: Blobs, bus: Bus) -> None:
        super().__init__()
        self._directory = home / "inbox"
        self._socket_path = home / "inbox.sock"
        self._store = store
        self._blobs = blobs
        self._bus = bus
        self._wakeup = Wakeup()
        self._journals: dict[str, Journal] = {}

    async def _work(self) -> None:
        self._directory.mkdir(mode=0o700, exist_ok=True)
        listener = self._listen()
        loop = asyncio.get_running_loop()
        loop.add_reader(listener, self._on_datagram, listener)
        try:
            while True:
                await self.look()
                await self._wakeup.wait(LOOK_S)
        finally:
            loop.remove_reader(listener)
            listener.close()
            self._socket_path.unlink(missing_ok=True)

    def _listen(self) -> socket.socket:
        self._socket_path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        listener.setblocking(False)
        # A socket's path may be no longer than about a hundred bytes; a deep home is looked at every second.
        with contextlib.suppress(OSError):
            listener.bind(str(self._socket_path))
            self._socket_path.chmod(0o600)
        return listener

    def _on_datagram(self, listener: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                listener.recv(64)
        self._wakeup.set()

    async def look(self) -> None:
        """Import what is new in every journal."""
        found = {match[1] for name in os.listdir(self._directory) if (match := _NAME.fullmatch(name))}
        for run in found - set(self._journals):
            try:
                self._journals[run] = await self._open(run)
            except OSError as error:
                log.error("journal %s cannot be read, trying again: %s", run, error)
        for journal in list(self._journals.values()):
            try:
                await self._advance(journal)
            except (FarhandError, OSError) as error:
                log.error("journal %s could not be imported, trying again: %s", journal.run, error)

    async def _open(self, run: str) -> Journal:
        """Begin to follow a journal, after the lines that an earlier owner of the store imported."""
        journal = Journal(run, self._directory / f"{run}.jsonl")
        last = await self._store.journals.last(run)
        with contextlib.suppress(FileNotFoundError), journal.path.open("rb") as file:
            for _ in range(last):
                journal.offset += len(file.readline())
        journal.seq = last
        return journal

    async def _advance(self, journal: Journal) -> None:
        released = _is_released(journal.path)
        while not journal.broken and await self._import(journal):
            pass
        if journal.over or released or journal.broken:
            await self._close(journal)

    async def _import(self, journal: Journal) -> bool:
        """Import the next complete lines; false when there are none."""
        lines, size = _complete_lines(journal.path, journal.offset)
        if not lines:
            return False
        records, broken = _decode(lines)
        if records:
            await asyncio.to_thread(self._take_blobs, records)
            taken, refused = await self._record(journal.run, journal.seq + 1, records)
            records, broken = records[:taken], refused or broken
        if broken:
            log.error(
                "journal %s is broken after line %s: %s", journal.run, journal.seq + len(records), broken
            )
            journal.broken = broken
        if not records:
            return False
        journal.offset += size
        journal.seq += len(records)
        journal.over = journal.over or any(record[0] == "result" for record in records)
        self._bus.publish(Notice("run", journal.run, await self._store.runs.get(journal.run)))
        self._bus.publish(Notice("logs", journal.run))
        if any(_is_of_a_called_flow(record) for record in records):
            called = await self._store.runs.page(_CALLED_MAX, wanted=Wanted(root=journal.run))
            for run in called.items:
                self._bus.publish(Notice("run", run.id, run))
        return True

    async def _record(self, run: str, first: int, records: list[list[Any]]) -> tuple[int, str]:
        """Record lines; returns how many were taken, and what is wrong with the one after them."""
        try:
            await self._store.journals.record(run, first, records, time.time())
            return len(records), ""
        except ProtocolViolation as violation:
            if len(records) == 1:
                return 0, str(violation)
        half = len(records) // 2
        taken, refused = await self._record(run, first, records[:half])
        if not refused:
            more, refused = await self._record(run, first + half, records[half:])
            taken += more
        return taken, refused

    def _take_blobs(self, records: list[list[Any]]) -> None:
        for digest in (str(digest) for record in records for digest in _digests(record)):
            try:
                self._blobs.adopt(self._directory / "blobs" / digest.removeprefix("sha256:"), digest)
            except FarhandError as error:
                log.error("a file of a script is not kept: %s", error)

    async def _close(self, journal: Journal) -> None:
        """The script has ended: call it crashed if it said nothing, and remove its file."""
        if not journal.over and journal.seq > 0:
            why = f"its journal cannot be read: {journal.broken}" if journal.broken else _DIED
            await self._store.journals.crash(journal.run, time.time(), why)
            self._bus.publish(Notice("run", journal.run, await self._store.runs.get(journal.run)))
        journal.path.unlink(missing_ok=True)
        del self._journals[journal.run]

    async def reconcile(self) -> None:
        """At the start: script runs that are open in the store and have no journal any more are over."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        for run in await self._store.journals.open_runs():
            if not (self._directory / f"{run}.jsonl").exists():
                await self._store.journals.crash(run, time.time(), _DIED)


def _complete_lines(path: Path, offset: int) -> tuple[list[bytes], int]:
    """The whole lines after ``offset``, a mebibyte or so, and their size; a line without end waits."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        file.seek(offset)
        chunk = file.read(_CHUNK_BYTES)
        if chunk and b"\n" not in chunk:
            chunk += file.readline()
        whole = chunk[: chunk.rfind(b"\n") + 1]
        return whole.split(b"\n")[:-1], len(whole)
    return [], 0


def _decode(lines: list[bytes]) -> tuple[list[list[Any]], str]:
    """The records up to the first line that is none, and what is wrong with that one."""
    records: list[list[Any]] = []
    for line in lines:
        try:
            records.append(_record(line))
        except ValueError as error:
            return records, str(error)
    return records, ""


def _is_of_a_called_flow(record: list[Any]) -> bool:
    """Whether a line begins or ends the run of a flow that the script's own called."""
    return record[0] in ("task", "checkpoint") and record[1].get("flow") is not None


def _digests(record: list[Any]) -> list[Any]:
    """The digests of the files a line stands for."""
    return record[2] if len(record) > 2 and isinstance(record[2], list) else []


def _is_released(path: Path) -> bool:
    """Whether no script holds the journal any more."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _record(line: bytes) -> list[Any]:
    """One record. The standard decoder, since it alone takes the escape of a lone surrogate."""
    record = json.loads(line)
    if not isinstance(record, list) or not record:
        raise ValueError("a record is a list of a kind and a body")
    return record
