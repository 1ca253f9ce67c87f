"""Every job begins in an empty directory, and most of them in one that an earlier job left as it was."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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


def _aged(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a directory had been made long ago."""
    monkeypatch.setattr(time, "time", lambda: path.stat().st_ctime + 60)


def test_one_that_has_not_changed_since_it_was_seen_to_be_empty_is_not_listed_again(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[Path] = []
    usual = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: listed.append(path) or usual(path))
    path = scratch.take()
    assert scratch.keep(path)
    assert scratch.take() == path
    assert len(listed) == 2  # its times do not tell yet
    _aged(path, monkeypatch)
    for _ in range(3):
        assert scratch.keep(path)
        assert scratch.take() == path
    assert len(listed) == 3


@pytest.mark.parametrize(("parts_ns", "listings"), [(123_456_789, 1), (0, 2)])
def test_times_tell_sooner_where_they_have_parts_of_a_second(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch, parts_ns: int, listings: int
) -> None:
    listed: list[Path] = []
    usual, lstat = os.listdir, os.lstat
    at = 1_700_000_000 * 10**9 + parts_ns

    def told(path: Path) -> Any:
        return SimpleNamespace(
            **{name: getattr(lstat(path), name) for name in ("st_ino", "st_mode", "st_uid", "st_gid")},
            st_mtime_ns=at,
            st_ctime_ns=at,
        )

    path = scratch.take()
    monkeypatch.setattr(os, "listdir", lambda path: listed.append(path) or usual(path))
    monkeypatch.setattr(os, "lstat", told)
    monkeypatch.setattr(time, "time", lambda: at / 1e9 + 0.5)
    assert scratch.keep(path)
    assert scratch.take() == path
    assert len(listed) == listings


def _with_a_hidden_file_and_its_time_set_back(path: Path) -> None:
    status = path.stat()
    (path / ".hidden").touch()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize(
    "change", [_with_a_file, _closed, _gone, _another, _a_link, _with_a_hidden_file_and_its_time_set_back]
)
def test_one_that_is_known_to_have_been_empty_and_was_changed_is_not_kept(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    path = scratch.take()
    _aged(path, monkeypatch)
    assert scratch.keep(path)
    assert scratch.take() == path
    change(path)
    assert not scratch.keep(path)


def test_the_root_that_was_cleared_away_is_made_again(scratch: Scratch) -> None:
    shutil.rmtree(scratch.root, ignore_errors=True)
    assert list(scratch.take().iterdir()) == []
