"""The journals of scripts, imported into a real store: once each, whatever happens to either side."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from anyio import fail_after

from farhand.blobs import Blobs, digest_of
from farhand.engine import inbox as inbox_module
from farhand.engine.bus import Bus
from farhand.engine.inbox import Inbox
from farhand.errors import StoreFailed
from farhand.model import Run
from farhand.sdk.ids import new_id
from farhand.store import Store
from tests.unit.engine.world import World

pytestmark = pytest.mark.anyio

RESULT = ["result", {"state": "completed", "at": 9.0, "value": {"enc": "json", "text": "42"}}]


class Script:
    """A script as its journal shows it: it appends, and holds the lock while it lives."""

    def __init__(self, home: Path) -> None:
        self.run = new_id()
        self.path = home / "inbox" / f"{self.run}.jsonl"
        self.path.parent.mkdir(exist_ok=True)
        self._file: BinaryIO = self.path.open("ab", buffering=0)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        opening = {"run": self.run, "flow": "weather", "params": {}, "at": 1.0, "pid": 1, "host": "here"}
        self.write(["script", opening])

    def write(self, *records: Any) -> None:
        self.write_raw(b"".join(json.dumps(record).encode() + b"\n" for record in records))

    def log(self, *texts: str) -> None:
        self.write(*(["log", {"at": 2.0, "text": text}] for text in texts))

    def write_raw(self, content: bytes) -> None:
        self._file.write(content)

    def end(self) -> None:
        """The process ends, by whatever cause."""
        self._file.close()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "inbox").mkdir()
    return tmp_path


@pytest.fixture
def scripts(home: Path) -> Iterator[list[Script]]:
    begun: list[Script] = []
    yield begun
    for script in begun:
        script.end()


@pytest.fixture
def script(home: Path, scripts: list[Script]) -> Script:
    scripts.append(Script(home))
    return scripts[0]


@pytest.fixture
async def inbox(home: Path, store: Store) -> Inbox:
    return an_inbox(home, store)


def an_inbox(home: Path, store: Store) -> Inbox:
    return Inbox(home, store, Blobs(home / "blobs"), Bus())


async def the_run(store: Store, script: Script) -> Run:
    run = await store.runs.get(script.run)
    assert run is not None
    return run


async def lines(store: Store, script: Script) -> list[str]:
    return [line.text for line in (await store.logs.page(script.run)).items]


async def test_a_live_script_is_followed_and_then_done_with(
    inbox: Inbox, store: Store, script: Script
) -> None:
    await inbox.look()
    run = await the_run(store, script)
    assert (run.state, run.origin, run.flow) == ("running", "script", "weather")
    script.log("one", "two")
    await inbox.look()
    assert await lines(store, script) == ["one", "two"]
    script.write(RESULT)
    await inbox.look()
    run = await the_run(store, script)
    assert (run.state, run.result) == ("completed", RESULT[1]["value"])
    assert not script.path.exists()


async def test_looking_again_records_nothing_twice(inbox: Inbox, store: Store, script: Script) -> None:
    script.log("one")
    for _ in range(5):
        await inbox.look()
    assert await lines(store, script) == ["one"]


async def test_a_last_line_without_its_end_waits(inbox: Inbox, store: Store, script: Script) -> None:
    whole = json.dumps(["log", {"at": 2.0, "text": "slow"}]).encode() + b"\n"
    script.write_raw(whole[:10])
    await inbox.look()
    assert await lines(store, script) == []
    script.write_raw(whole[10:-1])
    await inbox.look()
    assert await lines(store, script) == []
    script.write_raw(whole[-1:])
    await inbox.look()
    assert await lines(store, script) == ["slow"]


async def test_lines_longer_than_a_chunk_and_more_than_one_chunk_are_read_whole(
    inbox: Inbox, store: Store, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox_module, "_CHUNK_BYTES", 100)
    texts = ["x" * 5000, *(f"line {number}" for number in range(50))]
    script.log(*texts)
    await inbox.look()
    assert await lines(store, script) == texts


@pytest.mark.fault("1.10")
async def test_a_script_that_was_killed_is_crashed_with_all_it_had_said(
    inbox: Inbox, store: Store, script: Script
) -> None:
    script.log("last words")
    script.write_raw(b'["log",{"at"')
    script.end()
    await inbox.look()
    run = await the_run(store, script)
    assert (run.state, run.reason) == ("crashed", "script_died")
    assert await lines(store, script) == ["last words"]
    assert not script.path.exists()


@pytest.mark.fault("1.10")
async def test_a_script_that_is_silent_but_alive_is_left_alone(
    inbox: Inbox, store: Store, script: Script
) -> None:
    """A debugger pause is no death: the lock is what tells."""
    for _ in range(20):
        await inbox.look()
    assert (await the_run(store, script)).state == "running"


async def test_a_script_that_ended_by_itself_is_not_crashed_by_its_lock(
    inbox: Inbox, store: Store, script: Script
) -> None:
    script.write(RESULT)
    script.end()
    await inbox.look()
    await inbox.look()
    assert (await the_run(store, script)).state == "completed"


async def test_a_new_owner_of_the_store_goes_on_where_the_last_one_stopped(
    home: Path, store: Store, script: Script
) -> None:
    script.log("one")
    await an_inbox(home, store).look()
    script.log("two")
    again = an_inbox(home, store)
    await again.look()
    script.log("three")
    script.write(RESULT)
    await again.look()
    assert await lines(store, script) == ["one", "two", "three"]
    assert (await the_run(store, script)).state == "completed"


async def test_an_end_imported_by_an_owner_that_died_before_it_cleaned_up_stays_the_end(
    home: Path, store: Store, script: Script
) -> None:
    await an_inbox(home, store).look()
    script.write(RESULT)
    script.end()
    kept = script.path.read_bytes()
    await an_inbox(home, store).look()
    script.path.write_bytes(kept)
    await an_inbox(home, store).look()
    assert (await the_run(store, script)).state == "completed"
    assert not script.path.exists()


async def test_a_broken_line_costs_what_follows_it_and_not_what_was_before(
    inbox: Inbox, store: Store, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    script.log("good")
    script.write_raw(b"{broken\n")
    script.log("unreadable")
    await inbox.look()
    assert await lines(store, script) == ["good"]
    run = await the_run(store, script)
    assert run.state == "crashed"
    assert "its journal cannot be read" in run.message
    assert f"journal {script.run} is broken after line 2" in caplog.text


@pytest.mark.parametrize(
    "record",
    [
        {},
        [],
        [1, 2],
        ["log"],
        ["log", {"at": "noon"}],
        ["unheard of", {}],
    ],
    ids=str,
)
async def test_a_journal_of_nonsense_holds_up_no_other(
    home: Path, inbox: Inbox, store: Store, scripts: list[Script], record: Any
) -> None:
    for _ in range(2):
        scripts.append(Script(home))
    await inbox.look()
    scripts[0].log("good", "better")
    scripts[0].write(record)
    scripts[1].log("fine")
    await inbox.look()
    assert await lines(store, scripts[0]) == ["good", "better"]
    assert await lines(store, scripts[1]) == ["fine"]
    assert (await the_run(store, scripts[1])).state == "running"


async def test_a_journal_that_does_not_begin_with_its_own_script_is_no_run(
    home: Path, inbox: Inbox, store: Store, script: Script
) -> None:
    other = home / "inbox" / f"{new_id()}.jsonl"
    other.write_bytes(script.path.read_bytes())
    await inbox.look()
    assert await store.runs.get(other.stem) is None
    assert not other.exists()


async def test_files_that_are_no_journals_are_left_alone(home: Path, inbox: Inbox, script: Script) -> None:
    strangers = [
        home / "inbox" / name for name in ("notes.txt", ".hidden.jsonl", "UPPER123.jsonl", "x.jsonl")
    ]
    for path in strangers:
        path.write_text("mine")
    await inbox.look()
    assert all(path.exists() for path in strangers)


async def test_files_and_values_beside_the_journal_are_taken_into_the_store(
    home: Path, inbox: Inbox, store: Store, script: Script
) -> None:
    content = b"year,rain\n2014,38\n"
    digest = digest_of(content)
    beside = home / "inbox" / "blobs"
    beside.mkdir()
    (beside / digest.removeprefix("sha256:")).write_bytes(content)
    artifact = {"name": "rain.csv", "digest": digest, "size": len(content), "at": 2.0}
    script.write(["artifact", artifact, [digest]])
    await inbox.look()
    assert [found.digest for found in await store.artifacts.list(script.run)] == [digest]
    assert Blobs(home / "blobs").path(digest).read_bytes() == content


async def test_a_file_that_is_not_what_it_was_called_does_not_hold_up_its_journal(
    home: Path, inbox: Inbox, store: Store, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    digest = digest_of(b"promised")
    beside = home / "inbox" / "blobs"
    beside.mkdir()
    (beside / digest.removeprefix("sha256:")).write_bytes(b"other")
    script.write(["log", {"at": 2.0, "text": "x"}, [digest, "no digest"]])
    await inbox.look()
    assert await lines(store, script) == ["x"]
    assert not Blobs(home / "blobs").has(digest)
    assert caplog.text.count("a file of a script is not kept") == 2


async def test_what_the_store_cannot_take_now_is_imported_at_a_later_look(
    home: Path, store: Store, script: Script
) -> None:
    world = World(store)
    inbox = an_inbox(home, store)
    script.log("one")
    script.end()
    world.fail_writes(StoreFailed(), times=2)
    for _ in range(3):
        await inbox.look()
    assert await lines(store, script) == ["one"]
    assert (await the_run(store, script)).state == "crashed"


async def test_at_the_start_script_runs_whose_journal_is_gone_are_over(
    home: Path, inbox: Inbox, store: Store, scripts: list[Script]
) -> None:
    for _ in range(2):
        scripts.append(Script(home))
    await inbox.look()
    scripts[0].path.unlink()
    await an_inbox(home, store).reconcile()
    assert (await the_run(store, scripts[0])).state == "crashed"
    assert (await the_run(store, scripts[1])).state == "running"


async def test_a_datagram_brings_the_news_at_once(
    home: Path, store: Store, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox_module, "LOOK_S", 3600.0)
    bus = Bus()
    inbox = Inbox(home, store, Blobs(home / "blobs"), bus)
    async with bus.subscribe() as notices:
        inbox.start()
        try:
            with fail_after(10):
                await anext(notices)
                await anext(notices)
                script.log("news")
                with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
                    bell.sendto(b"x", str(home / "inbox.sock"))
                notice = await anext(notices)
        finally:
            await inbox.stop()
    assert notice.run == script.run
    assert await lines(store, script) == ["news"]
    assert not (home / "inbox.sock").exists()


async def test_a_home_too_deep_for_a_socket_is_looked_at_all_the_same(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / ("deep" * 30)
    os.makedirs(home / "inbox")
    monkeypatch.setattr(inbox_module, "LOOK_S", 0.01)
    script = Script(home)
    bus = Bus()
    inbox = Inbox(home, store, Blobs(home / "blobs"), bus)
    async with bus.subscribe() as notices:
        inbox.start()
        try:
            with fail_after(10):
                assert (await anext(notices)).run == script.run
        finally:
            await inbox.stop()
            script.end()
