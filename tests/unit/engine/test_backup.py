"""Backups and what is made of them: whole or not at all."""

from __future__ import annotations

import io
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from farhand.blobs import Blobs
from farhand.engine.backup import END, HEAD, STORE, Backup, archive, restore
from farhand.engine.pruner import Pruner
from farhand.errors import StoreFailed, Usage
from farhand.store import Store

pytestmark = pytest.mark.anyio
KEY = "token-key.pem"


@pytest.fixture
async def backup(tmp_path) -> Path:
    """A backup of a home with one event, one blob and one key, taken while its store is open."""
    home = tmp_path / "home"
    store = await Store.open(home / STORE)
    blobs = Blobs(home / "blobs")
    blobs.put_bytes(b"content" * 1000)
    (home / KEY).write_text("a key")
    (home / "server.json").write_text("not of the home's past")
    await store.events.add(1.0, "test", "before")
    file = tmp_path / "backup.tar"
    taking = Backup(store, home, Pruner(store, blobs))
    async with taking.taken() as pieces:
        content = b"".join([next(pieces)])
        await store.events.add(2.0, "test", "after")
        file.write_bytes(content + b"".join(pieces))
    await store.close()
    assert sorted(path.name for path in home.glob(".*")) == []
    return file


async def test_a_restored_home_has_all_of_its_moment_and_a_new_incarnation(backup, tmp_path):
    home = tmp_path / "restored"
    restore(backup, home)
    first = await Store.open(tmp_path / "home" / STORE)
    again = await Store.open(home / STORE)
    assert [event.message for event in (await again.events.page()).items] == ["before"]
    assert first.meta.incarnation() != again.meta.incarnation()
    assert (home / KEY).read_text() == "a key"
    assert not (home / "server.json").exists()
    assert Blobs(home / "blobs").put_bytes(b"content" * 1000)
    assert len(list((home / "blobs").glob("*/*"))) == 1
    assert home.stat().st_mode & 0o777 == 0o700
    assert (home / STORE).stat().st_mode & 0o777 == 0o600
    await first.close()
    await again.close()


async def test_any_tar_program_reads_a_backup(backup):
    with tarfile.open(backup) as tar:
        names = tar.getnames()
    assert (names[0], names[1], names[-1]) == (HEAD, STORE, END)
    assert KEY in names


async def test_a_home_that_is_not_empty_is_refused_untouched(backup, tmp_path):
    home = tmp_path / "home"
    before = sorted(path.name for path in home.iterdir())
    with pytest.raises(Usage, match="is not empty"):
        restore(backup, home)
    assert sorted(path.name for path in home.iterdir()) == before


@pytest.mark.parametrize("keep", [1000, 5000, -2000, -1536])
async def test_a_backup_that_was_cut_off_is_refused_and_leaves_nothing(backup, tmp_path, keep):
    backup.write_bytes(backup.read_bytes()[:keep])
    with pytest.raises(StoreFailed if keep != 1000 else (StoreFailed, Usage)):
        restore(backup, tmp_path / "new")
    assert not list(tmp_path.glob("*new*"))


async def test_a_damaged_blob_or_store_is_named(backup, tmp_path):
    content = backup.read_bytes()
    backup.write_bytes(content.replace(b"contentcontent", b"contentcOntent", 1))
    with pytest.raises(StoreFailed, match="the blob"):
        restore(backup, tmp_path / "new")
    backup.write_bytes(content.replace(b"SQLite format 3", b"SQLite format 9", 1))
    with pytest.raises(StoreFailed, match="damaged"):
        restore(backup, tmp_path / "new")
    assert not list(tmp_path.glob("*new*"))


def test_what_is_no_backup_is_said_to_be_none(tmp_path):
    file = tmp_path / "x.tar"
    file.write_bytes(b"anything")
    with pytest.raises(Usage, match="no backup"):
        restore(file, tmp_path / "new")
    with tarfile.open(file, "w") as tar:
        tar.addfile(tarfile.TarInfo("other"), io.BytesIO())
    with pytest.raises(Usage, match="no backup"):
        restore(file, tmp_path / "new")


def test_a_member_that_would_land_elsewhere_is_refused(tmp_path):
    file = tmp_path / "x.tar"
    for name in ("../escape", "/etc/escape", "blobs/aa/../../x", "other"):
        with tarfile.open(file, "w") as tar:
            tar.addfile(tarfile.TarInfo(HEAD), io.BytesIO())
            tar.addfile(tarfile.TarInfo(name), io.BytesIO())
        with pytest.raises(StoreFailed, match="which no backup has"):
            restore(file, tmp_path / "new")


async def test_a_newer_store_in_a_backup_is_refused(backup, tmp_path):
    from farhand.errors import StoreTooNew

    copy = tmp_path / "copy.db"
    with tarfile.open(backup) as tar:
        copy.write_bytes(tar.extractfile(STORE).read())
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute("PRAGMA user_version = 9999")
    backup.write_bytes(b"".join(archive(tmp_path, copy)))
    with pytest.raises(StoreTooNew):
        restore(backup, tmp_path / "new")
