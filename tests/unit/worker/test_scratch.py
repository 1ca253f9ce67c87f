"""Every job begins in an empty directory, and most of them in one that an earlier job left as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from farhand_worker.scratch import KEPT_MAX, Scratch


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    return Scratch(tmp_path)


def test_a_directory_that_was_left_as_it_was_is_the_next_jobs(scratch: Scratch) -> None:
    first, second = scratch.take(), scratch.take()
    assert first != second
    assert scratch.keep(first)
    assert scratch.take() == first


def _with_a_file(path: Path) -> None:
    (path / ".hidden").touch()


def _closed(path: Path) -> None:
    path.chmod(0o500)


def _gone(path: Path) -> None:
    path.rmdir()


def _another(path: Path) -> None:
    path.rename(path.with_name("aside"))
    path.mkdir()


def _a_link(path: Path) -> None:
    path.rename(path.with_name("aside"))
    path.symlink_to("aside")


@pytest.mark.parametrize("change", [_with_a_file, _closed, _gone, _another, _a_link])
def test_one_that_a_job_changed_is_not(scratch: Scratch, change: Callable[[Path], None]) -> None:
    path = scratch.take()
    change(path)
    assert not scratch.keep(path)
    scratch.remove(path)
    fresh = scratch.take()
    assert fresh != path
    assert list(fresh.iterdir()) == []


def test_what_comes_into_one_while_it_waits_goes_with_it(scratch: Scratch) -> None:
    path = scratch.take()
    assert scratch.keep(path)
    (path / "late").touch()
    assert scratch.take() != path
    assert not path.exists()


def test_no_more_are_kept_than_are_of_use(scratch: Scratch) -> None:
    taken = [scratch.take() for _ in range(KEPT_MAX + 1)]
    assert [scratch.keep(path) for path in taken] == [True] * KEPT_MAX + [False]
