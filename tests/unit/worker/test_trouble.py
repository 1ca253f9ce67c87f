"""A disk that takes no file: said once, again in each session, and taken back."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from farhand_worker import inmemory, spool_writer
from farhand_worker.protocol import AGENT, Assign, Changed, Event, Exit
from farhand_worker.reports import Reports, leftovers
from farhand_worker.trouble import DiskTrouble

pytestmark = pytest.mark.anyio

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
REASON = "its disk takes no file (No space left on device)"
END = Exit(1.0, "crashed", "exit 1")


class _Worker:
    def __init__(self, directory: Path) -> None:
        self.sent: list[Any] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.disk = DiskTrouble(directory, self.sent.append, self._begin, lambda: 0.01)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))


async def test_trouble_is_said_once_and_in_each_session_until_a_file_can_be_written(tmp_path: Path) -> None:
    directory = tmp_path / "not there"
    worker = _Worker(directory)
    worker.disk.say()
    assert worker.sent == []
    worker.disk.note(FULL)
    worker.disk.note(OSError("another"))
    worker.disk.say()
    assert worker.sent == [Changed(trouble=REASON)] * 2
    (watching,) = worker.tasks
    await asyncio.sleep(0.05)
    assert not watching.done()
    directory.mkdir()
    await asyncio.wait_for(watching, 10)
    assert worker.disk.reason == ""
    assert worker.sent[2:] == [Changed(trouble="")]
    assert list(directory.iterdir()) == []


async def test_a_job_that_cannot_be_taken_is_given_back_after_the_word_that_no_other_is(
    tmp_path: Path,
) -> None:
    worker = _Worker(tmp_path / "not there")
    assign = Assign(
        job="j", lease=7, attempt=1, kind="run", run="j", flow="f", entry="m:f", args={}, bundle="b", key=""
    )
    worker.disk.give_back(assign, FULL)
    told, given_back = worker.sent
    assert told == Changed(trouble=REASON)
    assert isinstance(given_back, Event)
    assert (given_back.job, given_back.lease, given_back.source, given_back.first) == ("j", 7, AGENT, 1)
    ((kind, body),) = given_back.events
    assert (kind, body["reason"]) == ("exit", "stopped")
    worker.tasks[0].cancel()


def _reports(directory: Path, noted: list[OSError]) -> Reports:
    reports = Reports(directory, directory / "outgoing", "j", 7, not_written=noted.append)
    reports.create()
    return reports


def _sent(reports: Reports) -> list[tuple[str, int, list[str]]]:
    sent: list[tuple[str, int, list[str]]] = []
    while batch := reports.next():
        sent.append((batch.source, batch.first, [line[:7] for line in batch.lines]))
    return sent


def _fill_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(fd: int, content: bytes) -> int:
        if os.readlink(f"/proc/self/fd/{fd}").endswith(".agent"):
            raise FULL
        return _write(fd, content)

    _write = os.write
    monkeypatch.setattr(spool_writer.os, "write", write)


async def test_the_end_of_a_job_is_told_from_memory_where_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After what was written before, of which some has gone out; the server hears what went wrong."""
    noted: list[OSError] = []
    reports = _reports(tmp_path, noted)
    reports.log(["one"])
    assert _sent(reports) == [("agent", 1, ['["log",'])]
    reports.log(["two"])
    _fill_disk(monkeypatch)
    reports.log(["lost"])
    await reports.seal_at_last(END)
    assert noted == [FULL, FULL]
    assert reports.end == ("crashed", "exit 1 (its worker's disk: No space left on device)")
    assert _sent(reports) == [("agent", 2, ['["log",', '["exit"'])]
    reports.acknowledge(AGENT, 3)
    assert reports.settled
    reports.rewind({AGENT: 1})
    assert _sent(reports) == [("agent", 2, ['["log",', '["exit"'])]
    reports.delete()
    assert os.listdir(tmp_path) == []


async def test_the_next_agent_says_what_the_one_before_had_in_memory_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill_disk(monkeypatch)
    reports = _reports(tmp_path, [])
    await reports.seal_at_last(END)
    reports.close()
    (left,) = leftovers(tmp_path, tmp_path / "outgoing")
    left.reopen(Exit(2.0, "crashed", "the agent ended"))
    assert left.end[1].startswith("the agent ended (")
    assert _sent(left) == [("agent", 1, ['["exit"'])]
    left.delete()


async def test_where_there_are_no_files_in_memory_the_end_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("farhand_worker.reports.WRITE_AGAIN_S", 0.01)
    monkeypatch.delattr(inmemory.os, "memfd_create", raising=False)
    reports = _reports(tmp_path, [])
    with monkeypatch.context() as full:
        _fill_disk(full)
        sealing = asyncio.ensure_future(reports.seal_at_last(END))
        await asyncio.sleep(0.05)
        assert not sealing.done()
    await asyncio.wait_for(sealing, 10)
    assert reports.end == ("crashed", "exit 1")
    reports.delete()


async def test_what_is_large_is_not_copied_to_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inmemory, "COPIED_BYTES_MAX", 3)
    path = tmp_path / "spool"
    path.write_text("four")
    assert inmemory.copied_to_memory(str(path)) is None
    path.write_text("one")
    fd = inmemory.copied_to_memory(str(path))
    assert fd is not None
    os.write(fd, b"more")
    assert os.pread(fd, 100, 0) == b"onemore"
    os.close(fd)
