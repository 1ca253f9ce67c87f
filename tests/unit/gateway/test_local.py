"""Finding the local worker of a server that is gone, and ending it."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import psutil
import pytest
from anyio import fail_after

from farhand.engine.fleet import Fleet
from farhand.engine.member import ONLINE
from farhand.errors import Conflict
from farhand.gateway import local as local_module
from farhand.gateway.local import LocalWorker, holder
from farhand_worker import protocol
from farhand_worker.state import StateDirectory
from tests.unit.engine.records import Clock, FakeLink

pytestmark = pytest.mark.anyio

TIMES = protocol.Times(grace_s=0.0, margin_s=0.2, heartbeat_s=0.02, lease_s=0.1)
HOLD = """
import fcntl, os, sys
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
file.write(f"{os.getpid()} instance\\n")
file.flush()
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def held(path: Path, content: str) -> Iterator[BinaryIO]:
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(content.encode())
        file.flush()
        yield file


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "local").mkdir()
    return tmp_path / "local"


@pytest.fixture
def process(directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds the lock as an agent does, and ends when its input ends."""
    arguments = [sys.executable, "-c", HOLD, str(directory / "lock")]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


@pytest.fixture
async def local(tmp_path: Path) -> LocalWorker:
    async def token() -> str:
        return "token"

    async def dismiss() -> bool:
        raise AssertionError("it is to be there")

    async def resize(slots: int) -> None:
        raise AssertionError("it has as many as it was started with")

    return LocalWorker(tmp_path, "http://127.0.0.1:1", token, 1, None, TIMES, Fleet(TIMES), dismiss, resize)


def test_a_free_lock_has_no_holder(directory: Path) -> None:
    assert holder(directory) is None
    (directory / "lock").write_text("12345 gone\n")
    assert holder(directory) is None
    assert holder(directory / "nowhere") is None


def test_a_lock_that_an_agent_holds_names_its_process(directory: Path) -> None:
    state = StateDirectory(directory)
    state.open()
    try:
        assert holder(directory) == os.getpid()
    finally:
        state.close()
    assert holder(directory) is None


@pytest.mark.parametrize("content", ["", "\n", "no number\n"])
def test_a_lock_that_was_taken_just_now_has_a_holder_without_a_name(directory: Path, content: str) -> None:
    with held(directory / "lock", content):
        assert holder(directory) == 0


async def test_a_process_that_is_not_our_child_is_waited_for(process: subprocess.Popen[bytes]) -> None:
    waiting = asyncio.create_task(local_module._ended(psutil.Process(process.pid)))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(waiting), 0.01)
    process.kill()
    with fail_after(5):
        await waiting


async def test_a_process_without_a_name_is_neither_guarded_nor_signalled(local: LocalWorker) -> None:
    """An id of 0 would be everybody in this process's group."""
    assert local_module._process(0) is local_module._process(None) is None
    with fail_after(5):
        await local._guard(None)


async def test_a_later_process_with_the_id_of_one_that_ended_is_neither_waited_for_nor_signalled(
    process: subprocess.Popen[bytes],
) -> None:
    remembered = psutil.Process(process.pid)
    remembered._ident = (process.pid, 1.0)  # as if it had begun long before the one that has the id now
    remembered._create_time = 1.0
    with fail_after(5):
        await local_module._ended(remembered)
    local_module._signal(remembered, signal.SIGKILL)
    assert process.poll() is None


async def test_a_worker_that_is_attached_is_left_alone_and_one_that_is_not_heard_of_is_killed(
    local: LocalWorker, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_module, "_START_S", 0.0)
    clock = Clock()
    monkeypatch.setattr(local_module, "time", clock)
    (local._directory / "parallel").write_text("1")
    server = local._fleet.member("server")
    server.state, server.link = ONLINE, FakeLink()
    guarding = asyncio.create_task(local._guard(psutil.Process(process.pid)))
    looked = asyncio.Event()
    is_attached = local._is_attached

    def looking() -> bool:
        looked.set()
        return is_attached()

    monkeypatch.setattr(local, "_is_attached", looking)
    with fail_after(10):
        for _ in range(3):
            clock.now += 3600.0
            looked.clear()
            await looked.wait()
        assert process.poll() is None
        server.link = None
        looked.clear()
        await looked.wait()
        clock.now += TIMES.lease_s + TIMES.margin_s + 0.1
        await guarding
    assert process.wait() == -signal.SIGKILL


async def test_ending_asks_first_and_kills_what_does_not_end(
    local: LocalWorker, directory: Path, process: subprocess.Popen[bytes]
) -> None:
    with fail_after(10):
        await local.end()
    assert process.wait() in (-signal.SIGTERM, -signal.SIGINT, -signal.SIGKILL)
    assert holder(directory) is None


async def test_ending_what_is_not_there_is_no_fault(local: LocalWorker, directory: Path) -> None:
    with fail_after(5):
        await local.end()
        with held(directory / "lock", ""):
            await local.end()


async def test_the_next_server_takes_over_the_worker_of_the_last_and_writes_its_address_first(
    local: LocalWorker,
    directory: Path,
    process: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guarded: list[tuple[int, str]] = []
    over = asyncio.Event()

    async def guard(process: psutil.Process) -> None:
        guarded.append((process.pid, (directory / "url").read_text()))
        over.set()
        await asyncio.Event().wait()

    async def spawn() -> asyncio.subprocess.Process:
        raise AssertionError("there is one already")

    monkeypatch.setattr(local, "_guard", guard)
    monkeypatch.setattr(local, "_spawn", spawn)
    local.start()
    with fail_after(5):
        await over.wait()
        await local.stop()
    assert guarded == [(process.pid, "http://127.0.0.1:1")]


async def test_a_server_without_processors_of_its_own_starts_none(
    local: LocalWorker, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawned: list[str] = []
    monkeypatch.setattr(local, "_spawn", spawned.append)
    monkeypatch.setattr(local, "_parallel", 0)
    monkeypatch.setattr(local, "_times", replace(TIMES, lease_s=0.0))
    answers = [False, False, True]
    dismissed = asyncio.Event()

    async def dismiss() -> bool:
        """Forgets the worker of earlier, once it holds nothing any more."""
        if answers[0]:
            dismissed.set()
        return answers.pop(0)

    monkeypatch.setattr(local, "_dismiss", dismiss)
    working = asyncio.create_task(local._work())
    with fail_after(5):
        await dismissed.wait()
    assert (working.done(), spawned, (directory / "url").exists()) == (False, [], True)
    working.cancel()
    with fail_after(5):
        await local.end()


async def test_a_worker_that_is_there_and_is_wanted_no_more_finishes_what_it_has(
    local: LocalWorker, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int | None] = []
    dismissed = asyncio.Event()

    async def dismiss() -> bool:
        ended.append(process.wait())
        dismissed.set()
        return True

    monkeypatch.setattr(local, "_parallel", 0)
    monkeypatch.setattr(local, "_dismiss", dismiss)
    monkeypatch.setattr(local_module, "_START_S", 60.0)
    local.start()
    with fail_after(5):
        await dismissed.wait()
        await local.stop()
    assert ended == [-signal.SIGTERM]


@pytest.mark.parametrize("started_with", ["2", "", None])
async def test_a_worker_that_was_started_with_other_slots_is_given_those_of_this_start_once(
    local: LocalWorker, directory: Path, monkeypatch: pytest.MonkeyPatch, started_with: str | None
) -> None:
    if started_with is not None:
        (directory / "parallel").write_text(started_with)
    given: list[int] = []

    async def resize(slots: int) -> None:
        given.append(slots)
        if len(given) == 1:
            raise Conflict("server is not attached")

    monkeypatch.setattr(local, "_resize", resize)
    for _ in range(4):
        await local._size()
    assert given == [1, 1]
