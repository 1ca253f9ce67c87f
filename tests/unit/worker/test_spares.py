"""Files that are made before they are needed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from farhand_worker.spares import FEWEST, KEPT, Spares
from farhand_worker.spool import SpoolReader

pytestmark = pytest.mark.anyio


async def test_one_that_is_ready_gets_its_name_and_is_open(tmp_path: Path) -> None:
    spares = Spares(tmp_path / "spares")
    spares.fill()
    assert len(os.listdir(tmp_path / "spares")) == KEPT
    spare = spares.take()
    assert spare is not None
    spare.be(f"{tmp_path}/job-1.engine")
    (tmp_path / "job-1.engine").write_text("line\n")
    assert os.pread(spare.fd, 100, 0) == b"line\n"
    assert os.stat(spare.fd).st_mode & 0o777 == 0o600
    os.close(spare.fd)
    spares.tidy()
    assert (tmp_path / "job-1.engine").stat().st_nlink == 1
    spares.close()


async def test_a_spool_is_made_where_none_is_ready_or_it_has_gone(tmp_path: Path) -> None:
    spares = Spares(tmp_path / "spares")
    first, second = SpoolReader(tmp_path / "a"), SpoolReader(tmp_path / "b")
    first.create(spares)
    spares.fill()
    for path in (tmp_path / "spares").iterdir():
        path.unlink()
    second.create(spares)
    for reader in (first, second):
        reader.name()
    assert (tmp_path / "a").is_file()
    assert (tmp_path / "b").is_file()
    for reader in (first, second):
        reader.close()
    spares.close()


async def test_what_was_taken_is_made_again_and_no_more_than_are_kept(tmp_path: Path) -> None:
    spares = Spares(tmp_path / "spares")
    assert spares.take() is None
    assert not (tmp_path / "spares").exists()
    spares.fill()
    spare = spares.take()
    assert spare is not None
    os.close(spare.fd)
    spares.tidy()
    assert len(os.listdir(tmp_path / "spares")) == KEPT - 1
    spares.fill()
    assert len(os.listdir(tmp_path / "spares")) == KEPT - 1, "there are enough"
    for _ in range(KEPT - FEWEST):
        other = spares.take()
        assert other is not None
        os.close(other.fd)
    spares.tidy()
    for _ in range(2):
        spares.fill()
        assert len(os.listdir(tmp_path / "spares")) == KEPT
    spares.close()


async def test_a_spool_that_is_done_with_is_the_next_one_empty(tmp_path: Path) -> None:
    spares = Spares(tmp_path / "spares")
    reader = SpoolReader(tmp_path / "a")
    reader.create(spares)
    reader.name()
    (tmp_path / "a").write_text("of the one before\n")
    inode = (tmp_path / "a").stat().st_ino
    assert reader.give_back(spares)
    assert not reader.give_back(spares), "it is not there any more"
    reader.close()
    assert not (tmp_path / "a").exists()
    later = SpoolReader(tmp_path / "b")
    later.create(spares)
    later.name()
    spares.tidy()
    assert (tmp_path / "b").stat().st_ino == inode
    assert (tmp_path / "b").stat().st_nlink == 1
    assert later.grow() == 0
    with (tmp_path / "b").open("a") as file:
        file.write('["log",{}]\n')
    assert later.grow() == len('["log",{}]\n')
    later.close()
    spares.close()


async def test_no_more_are_taken_back_than_are_kept_and_none_that_has_gone(tmp_path: Path) -> None:
    spares = Spares(tmp_path / "spares")
    reader = SpoolReader(tmp_path / "a")
    reader.create()
    (tmp_path / "a").unlink()
    assert not reader.give_back(spares)
    spares.fill()
    reader.close()
    reader.create()
    assert not reader.give_back(spares)
    assert (tmp_path / "a").exists()
    reader.close()
    spares.close()


async def test_a_disk_that_takes_none_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "spares").touch()
    spares = Spares(tmp_path / "spares")
    spares.fill()
    assert spares.take() is None
    spares.close()


async def test_a_spool_that_was_written_to_before_it_has_its_name_is_what_was_written(tmp_path: Path) -> None:
    spares = Spares(tmp_path / "spares")
    spares.fill()
    reader = SpoolReader(tmp_path / "a")
    reader.create(spares)
    assert not (tmp_path / "a").exists()
    (tmp_path / "a").write_text('["log",{}]\n')
    reader.name()
    assert reader.grow() == len('["log",{}]\n')
    reader.close()
    spares.close()


def test_what_can_have_no_name_is_not_kept_open(tmp_path: Path) -> None:
    spares = Spares(tmp_path / "spares")
    spares.fill()
    (tmp_path / "no directory").touch()
    reader = SpoolReader(tmp_path / "no directory" / "a")
    reader.create(spares)
    with pytest.raises(NotADirectoryError):
        reader.name()
    spares.close()
    assert not [
        fd for fd in os.listdir("/proc/self/fd") if "spares" in os.path.realpath(f"/proc/self/fd/{fd}")
    ]
