"""What a store keeps when the disk is full in the middle of a commit that many share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from farhand.errors import StoreFailed
from farhand.store import Store, writer
from farhand.store.guard import Connection
from tests.harness.disks import small_disk

pytestmark = [pytest.mark.anyio, pytest.mark.fault("1.14")]

BIG = "x" * 200_000
BATCH_S = 0.2
"""Long enough for what is to share a batch, also on a machine that is busy with other tests."""


@pytest.fixture(autouse=True)
def _long_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "BATCH_S_MAX", BATCH_S)


async def together(store: Store, *writes: object) -> list[object]:
    """Run writes in one batch: they gather behind an operation that holds the writer until all wait."""
    gate = threading.Event()
    held = asyncio.ensure_future(store.database.write(lambda connection: gate.wait(30)))
    await asyncio.sleep(0)
    waiting = [asyncio.ensure_future(write) for write in writes]  # type: ignore[arg-type]
    await asyncio.sleep(0)
    before = store.database.commits
    asyncio.get_running_loop().call_later(
        BATCH_S * 1.5, gate.set
    )  # past the age at which the held batch closes
    results = await asyncio.gather(*waiting, return_exceptions=True)
    await held
    assert store.database.commits - before <= 2
    return results


def note(store: Store, text: str):
    return store.events.add(1.0, "test", text)


async def messages(store: Store) -> list[str]:
    return [event.message[:5] for event in (await store.events.page(limit=1000)).items]


async def test_a_full_disk_inside_an_operation_fails_its_batch_and_the_next_succeeds(tmp_path):
    """B127: SQLite itself reports the database full, and ends the transaction that the batch shares."""
    store = await Store.open(tmp_path / "home")
    await note(store, "first")
    limit_pages(store, 0)
    results = await together(store, note(store, "small"), note(store, BIG), note(store, "next"))
    assert [type(result) for result in results] == [StoreFailed, StoreFailed, type(None)]
    assert await messages(store) == ["first", "next"]
    limit_pages(store, 1_000_000)
    assert await together(store, note(store, "small"), note(store, BIG), note(store, "after")) == [None] * 3
    assert await messages(store) == ["first", "next", "small", "xxxxx", "after"]
    await store.close()


async def test_an_operation_that_hides_the_full_disk_cannot_go_on_outside_the_transaction(tmp_path):
    store = await Store.open(tmp_path / "home")
    limit_pages(store, 0)

    def stubborn(connection: Connection) -> None:
        insert = "INSERT INTO events (at, kind, message, details) VALUES (1, 'k', ?, '{}')"
        try:
            connection.execute(insert, (BIG,))
        except Exception:  # noqa: BLE001 the mistake under test
            connection.execute(insert, ("small",))

    with pytest.raises(StoreFailed):
        await store.database.write(stubborn)
    limit_pages(store, 1_000_000)
    assert await messages(store) == []
    await store.close()


async def test_a_result_that_could_not_be_stored_is_stored_when_it_is_sent_again(tmp_path, tell):
    """B127: a run that has finished is never left running by a store that had no room."""
    store = await Store.open(tmp_path / "home")
    story = tell(store)
    leased = await story.running()
    limit_pages(store, 0)
    with pytest.raises(StoreFailed):
        await story.report(leased, story.log(BIG), story.result())
    assert await story.state(leased.run.id) == "running"
    limit_pages(store, 1_000_000)
    await story.report(leased, story.log(BIG), story.result())
    assert await story.state(leased.run.id) == "completed"
    await store.close()


def limit_pages(store: Store, pages: int) -> None:
    """Let the file have at most so many pages (or as many as it has); SQLite then says it is full."""
    store.database._writing.execute(f"PRAGMA max_page_count = {max(pages, 1)}")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of four mebibytes."""
    with small_disk(tmp_path / "disk", 4) as target:
        yield target


async def test_a_full_file_system_fails_the_commit_and_the_next_succeeds(disk, tell):
    """B127: the kernel refuses the write of COMMIT itself."""
    store = await Store.open(disk / "home")
    story = tell(store)
    leased = await story.running()
    ballast = disk / "ballast"
    fill(ballast)
    results = await together(
        store,
        *(note(store, BIG) for _ in range(3)),
        story.report(leased, story.log(BIG), story.result()),
    )
    assert [type(result) for result in results] == [StoreFailed] * 4
    assert await story.state(leased.run.id) == "running"
    assert "xxxxx" not in await messages(store)
    ballast.unlink()
    results = await together(store, note(store, "after"), story.report(leased, story.result()))
    assert not any(isinstance(result, Exception) for result in results)
    assert await story.state(leased.run.id) == "completed"
    check = await store.database.read(lambda c: c._connection.execute("PRAGMA integrity_check").fetchone()[0])
    assert check == "ok"
    await store.close()


def fill(ballast: Path) -> None:
    """Write until nothing more fits."""
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            return
