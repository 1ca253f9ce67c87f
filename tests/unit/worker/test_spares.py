"""Files that are made before they are needed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from farhand_worker.spares import FEWEST, HEAD, KEPT, Spares
from farhand_worker.spool import SpoolReader

pytestmark = pytest.mark.anyio


def _use(spares: Spares, directory: Path) -> None:
    fd = spares.take(directory / "taken")
    assert fd is not None
    os.close(fd)


async def test_one_that_is_ready_gets_its_name_and_is_open(tmp_path: Path) -> None:
    spares = Spares(tmp_path / "spares")
    spares.fill()
    assert len(os.listdir(tmp_path / "spares")) == KEPT
    fd = spares.take(tmp_path / "job-1.engine")
    assert fd is not None
    assert len(os.listdir(tmp_path / "spares")) == KEPT - 1
    with (tmp_path / "job-1.engine").open("a") as file:
        file.write("line\n")
    assert os.pread(fd, 100, 0) == HEAD + b"line\n"
    assert os.stat(fd).st_mode & 0o777 == 0o600
    os.close(fd)
    spares.close()


async def test_a_spool_is_made_where_none_is_ready_or_it_has_gone(tmp_path: Path) -> None:
    spares = Spares(tmp_path / "spares")
    first, second = SpoolReader(tmp_path / "a"), SpoolReader(tmp_path / "b")
    first.create(spares)
    spares.fill()
    for path in (tmp_path / "spares").iterdir():
        path.unlink()
    second.create(spares)
    assert (tmp_path / "a").is_file()
    assert (tmp_path / "b").is_file()
    for reader in (first, second):
        reader.close()
    spares.close()


async def test_what_was_taken_is_made_again_and_no_more_than_are_kept(tmp_path: Path) -> None:
    spares = Spares(tmp_path / "spares")
    assert spares.take(tmp_path / "a") is None
    assert not (tmp_path / "spares").exists()
    spares.fill()
    _use(spares, tmp_path)
    spares.fill()
    assert len(os.listdir(tmp_path / "spares")) == KEPT - 1, "there are enough"
    for _ in range(KEPT - FEWEST):
        _use(spares, tmp_path)
    for _ in range(2):
        spares.fill()
        assert len(os.listdir(tmp_path / "spares")) == KEPT
    spares.close()


async def test_a_spool_that_is_done_with_is_the_next_one_empty(tmp_path: Path) -> None:
    spares = Spares(tmp_path / "spares")
    reader = SpoolReader(tmp_path / "a")
    reader.create(spares)
    (tmp_path / "a").write_text("of the one before\n")
    inode = (tmp_path / "a").stat().st_ino
    assert reader.give_back(spares)
    assert not reader.give_back(spares), "it is not there any more"
    reader.close()
    assert not (tmp_path / "a").exists()
    later = SpoolReader(tmp_path / "b")
    later.create(spares)
    assert (tmp_path / "b").stat().st_ino == inode
    assert not later.unsent_bytes
    assert later.settled
    with (tmp_path / "b").open("a") as file:
        file.write('["log",{}]\n')
    later.grow()
    batch, _ = later.next_batch(set(), final=False)
    assert batch is not None
    assert (batch.first, batch.lines) == (1, ['["log",{}]'])
    later.close()
    spares.close()


async def test_what_is_left_in_one_that_was_used_before_is_read_from_its_first_line(tmp_path: Path) -> None:
    spares = Spares(tmp_path / "spares")
    spares.fill()
    _use(spares, tmp_path)
    with (tmp_path / "taken").open("a") as file:
        file.write('["started",{"at":7.5}]\n["log",{}]\n["result",{"state":"completed"}]\n')
    spares.close()
    reader = SpoolReader(tmp_path / "taken")
    assert reader.started_at() == 7.5
    final = reader.final()
    assert final is not None
    assert final[1].startswith(b'["result"')
    for recorded, left in ((0, 3), (2, 1), (1, 2)):
        reader.grow()
        reader.rewind(recorded)
        batch, _ = reader.next_batch(set(), final=True)
        assert batch is not None
        assert (batch.first, len(batch.lines)) == (recorded + 1, left)
        assert batch.lines[-1].startswith('["result"')
    reader.close()


async def test_an_empty_one_is_not_empty_to_the_disk(tmp_path: Path) -> None:
    """ext4 writes what was cut to nothing to the disk as soon as it is closed (``auto_da_alloc``)."""
    spares = Spares(tmp_path / "spares")
    for content in ("", "of the one before\n", "x"):
        reader = SpoolReader(tmp_path / "a")
        reader.create()
        (tmp_path / "a").write_text(content)
        assert reader.give_back(spares)
        (kept,) = (tmp_path / "spares").iterdir()
        assert kept.read_bytes() == HEAD
        _use(spares, tmp_path)
        (tmp_path / "taken").unlink()


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
    assert spares.take(tmp_path / "a") is None
    reader = SpoolReader(tmp_path / "a")
    reader.create(spares)
    assert not reader.give_back(spares), "it is to be removed, as any other"
    reader.close()
    spares.close()


def test_what_can_have_no_name_is_not_kept_open(tmp_path: Path) -> None:
    spares = Spares(tmp_path / "spares")
    spares.fill()
    (tmp_path / "no directory").touch()
    reader = SpoolReader(tmp_path / "no directory" / "a")
    with pytest.raises(NotADirectoryError):
        reader.create(spares)
    spares.close()
    assert not [
        fd for fd in os.listdir("/proc/self/fd") if "spares" in os.path.realpath(f"/proc/self/fd/{fd}")
    ]
