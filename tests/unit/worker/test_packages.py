"""What was installed, removed or is of another version is said by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from farhand_worker.packages import NAMED_MAX, difference, keep, read_kept


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ([], [], []),
        (["a-1"], ["a-1"], []),
        (["a-1", "b-2"], ["a-1.1", "c-3"], ["a 1 is now 1.1", "b 2 removed", "c 3 added"]),
        (["a-1"], ["a-1", "a-2"], ["a 1 is now 1 and 2"]),
        (["odd"], [], ["odd  removed"]),
    ],
)
def test_a_change_names_each_distribution(before: list[str], after: list[str], told: list[str]) -> None:
    assert difference(before, after) == told


def test_a_change_of_everything_is_cut() -> None:
    told = difference([], [f"d{n:03d}-1" for n in range(NAMED_MAX + 7)])
    assert (len(told), told[-1]) == (NAMED_MAX + 1, "7 more")


def test_the_list_is_kept_for_the_next_program(tmp_path: Path) -> None:
    assert read_kept(tmp_path / "installed") is None
    keep(tmp_path / "installed", ["a-1", "b-2"])
    assert read_kept(tmp_path / "installed") == ["a-1", "b-2"]
    keep(tmp_path / "absent" / "installed", ["a-1"])
