"""What jobs had saved goes at once when it is little, and beside everything else when it is much."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from farhand_worker import leavings as leavings_module
from farhand_worker.leavings import Leavings

pytestmark = pytest.mark.anyio


def filled(directory: Path, *names: str) -> Path:
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(b"content")
    return directory


@pytest.mark.parametrize(
    ("names", "bytes_max", "beside"),
    [
        (["one"], 100, False),
        (["1", "2", "3", "4"], 100, False),
        (["1", "2", "3", "4", "5"], 100, True),
        (["one"], 6, True),
        (["in/one"], 1 << 20, True),
    ],
)
async def test_a_little_goes_at_once_and_much_by_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], bytes_max: int, beside: bool
) -> None:
    monkeypatch.setattr(leavings_module, "_BYTES_MAX", bytes_max)
    begun: list[Coroutine[Any, Any, None]] = []
    directory = filled(tmp_path / "job", *names)
    Leavings(tmp_path, begun.append).remove(str(directory))
    assert len(begun) == beside
    for work in begun:
        await work
    assert not directory.exists()


def test_what_is_not_there_needs_nobody(tmp_path: Path) -> None:
    Leavings(tmp_path, lambda _: pytest.fail("there is nothing to delete")).remove(str(tmp_path / "none"))


@pytest.mark.parametrize("count", [1, 3, 4, 20])
def test_what_was_added_goes_whether_it_is_there_or_not(tmp_path: Path, count: int) -> None:
    leavings = Leavings(tmp_path, lambda _: pytest.fail("there is little to delete"))
    filled(tmp_path / "another", "one")
    for number in range(count):
        directory = tmp_path / str(number)
        if number % 3 == 0:
            filled(directory, "one")
        leavings.add(str(directory))
    leavings.clear()
    assert [path.name for path in tmp_path.iterdir()] == ["another"]
    filled(tmp_path / "0", "one")
    leavings.clear()
    assert (tmp_path / "0").exists(), "it was not added again"


def test_where_all_of_it_was_cleared_away_nothing_is_left_to_delete(tmp_path: Path) -> None:
    leavings = Leavings(tmp_path / "gone", lambda _: pytest.fail("there is nothing to delete"))
    for number in range(20):
        leavings.add(str(tmp_path / "gone" / str(number)))
    leavings.clear()
