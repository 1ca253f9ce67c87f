"""Changes of a directory that is served, noticed and taken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from farhand.engine import watcher as watcher_module
from farhand.engine.packing import Packed
from farhand.engine.watcher import Watcher, look
from farhand.errors import Unreachable

pytestmark = pytest.mark.anyio

FLOW = "from farhand import flow\n@flow\ndef {0}():\n    pass\n"


class Taken:
    """In place of the server's projects: remembers what it was given."""

    def __init__(self) -> None:
        self.versions: list[Packed] = []
        self.notes: list[str] = []
        self.changed = asyncio.Event()

    async def serve(self, root: Path, packed: Packed) -> None:
        self.versions.append(packed)
        self.changed.set()

    async def note(self, name: str, error: str) -> None:
        self.notes.append(error)
        self.changed.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for a version, or a note, with which it holds."""
        async with asyncio.timeout(20):
            while not holds():
                self.changed.clear()
                await self.changed.wait()

    @property
    def names(self) -> list[str]:
        """The flows of the last version."""
        return [flow.name for flow in self.versions[-1].offer.flows] if self.versions else []


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "one.py").write_text(FLOW.format("one"))
    return tmp_path / "project"


@pytest.fixture
async def taken(root: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Taken]:
    monkeypatch.setattr(watcher_module, "LOOK_S", 0.05)
    monkeypatch.setattr(watcher_module, "QUIET_S", 0.05)
    taken = Taken()
    watcher = Watcher(taken, root)  # type: ignore[arg-type]
    watcher.start()
    try:
        await asyncio.wait_for(watcher.ready(), 20)
        yield taken
    finally:
        await watcher.stop()


async def test_an_empty_directory_is_read_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher_module, "LOOK_S", 0.05)
    watcher = Watcher(Taken(), tmp_path)  # type: ignore[arg-type]
    watcher.start()
    try:
        packed = await asyncio.wait_for(watcher.ready(), 20)
    finally:
        await watcher.stop()
    assert packed is not None
    assert packed.offer.flows == []


async def test_changes_are_picked_up(root: Path, taken: Taken) -> None:
    assert taken.names == ["one"]
    (root / "one.py").write_text(FLOW.format("uno"))
    await taken.until(lambda: taken.names == ["uno"])
    (root / "two.py").write_text(FLOW.format("two"))
    await taken.until(lambda: taken.names == ["two", "uno"] or taken.names == ["uno", "two"])
    (root / "one.py").unlink()
    await taken.until(lambda: taken.names == ["two"])


async def test_a_change_does_not_wait_for_a_module_that_hangs(root: Path, taken: Taken) -> None:
    (root / "hangs.py").write_text("import farhand, time\ntime.sleep(1000)\n")
    await taken.until(lambda: bool(taken.versions[-1].offer.errors))
    (root / "one.py").write_text(FLOW.format("uno"))
    await taken.until(lambda: taken.names == ["uno"])


async def test_settings_that_cannot_be_read_are_noted_and_everything_stays(root: Path, taken: Taken) -> None:
    (root / "farhand.toml").write_text("[project\n")
    await taken.until(lambda: bool(taken.notes))
    assert "farhand.toml cannot be read" in taken.notes[0]
    (root / "farhand.toml").write_text('[project]\nname = "sums"\n')
    await taken.until(lambda: taken.versions[-1].name == "sums")


async def known(watcher: Watcher, taken: Taken, name: str) -> bool:
    async for _ in watcher.news(20.0):
        if name in taken.names:
            return True
    return False


async def test_who_asks_for_a_flow_that_was_just_written_does_not_wait_for_the_next_look(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher_module, "LOOK_S", 1000.0)
    taken = Taken()
    watcher = Watcher(taken, root)  # type: ignore[arg-type]
    watcher.start()
    try:
        await asyncio.wait_for(watcher.ready(), 20)
        (root / "two.py").write_text(FLOW.format("two"))
        assert await known(watcher, taken, "two")
        asked = [known(watcher, taken, "none") for _ in range(5)]
        assert await asyncio.gather(*asked) == [False] * 5
        assert not watcher.reading
        async for _ in watcher.news(0.0):
            raise AssertionError("nobody waited that long")
    finally:
        await watcher.stop()


def test_the_scan_sees_content_size_and_names_and_leaves_environments_alone(root: Path) -> None:
    before = look(root)
    assert look(root) == before
    (root / ".venv" / "lib").mkdir(parents=True)
    (root / ".venv" / "lib" / "x.py").write_text("")
    assert look(root) == before
    (root / "one.py").write_text("x = 1\n")
    assert look(root) != before


async def test_a_directory_is_read_again_when_the_store_was_away(root: Path, taken: Taken) -> None:
    refusals = 2

    async def refuse(*_: object) -> None:
        nonlocal refusals
        refusals -= 1
        if not refusals:
            vars(taken).clear()
            vars(taken).update(before)
        raise Unreachable("the store is away")

    before = dict(vars(taken))
    taken.serve = taken.note = refuse  # type: ignore[method-assign]
    (root / "two.py").write_text(FLOW.format("two"))
    await taken.until(lambda: taken.names == ["one", "two"])
    assert taken.notes == []
