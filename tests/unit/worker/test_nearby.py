"""The server's directory, seen from a worker: proved by a nonce, and no file is believed unread."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from farhand.blobs import Blobs, digest_of
from farhand_worker.blobs import hex_of
from farhand_worker.nearby import Nearby, look
from farhand_worker.transfer import Claim, Transfer, TransferFailed
from tests.harness.disks import small_disk


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "home" / "blobs")


def near(tmp_path: Path, told: dict[str, str] | None, *shared: str) -> Nearby:
    nearby = Nearby([str(tmp_path), *shared])
    nearby.prove(told)
    return nearby


def test_a_blob_is_copied_from_a_directory_that_holds_the_nonce(tmp_path: Path, blobs: Blobs) -> None:
    digest = blobs.put_bytes(b"content")
    nearby = near(tmp_path, blobs.write_probe())
    target = tmp_path / "there" / "copy"
    assert nearby.seen
    assert nearby.copy(digest, target)
    assert target.read_bytes() == b"content"
    assert target.stat().st_ino != blobs.path(digest).stat().st_ino, "what is done to it here stays here"
    assert not nearby.copy("sha256:" + "0" * 64, target)


def test_the_nonce_of_an_earlier_start_proves_nothing(tmp_path: Path, blobs: Blobs) -> None:
    stale = blobs.write_probe()
    fresh = blobs.write_probe()
    assert not near(tmp_path, stale).seen
    nearby = near(tmp_path, fresh)
    assert nearby.seen
    nearby.prove(stale)
    assert not nearby.seen, "what was proved for a server that is gone is not proved for this one"


@pytest.mark.parametrize("probe", [None, "another nonce", ""])
def test_another_directory_of_the_same_path_proves_nothing(tmp_path: Path, probe: str | None) -> None:
    (tmp_path / "blobs").mkdir()
    if probe is not None:
        (tmp_path / "blobs" / "probe").write_text(probe)
    assert not near(tmp_path, {"directory": str(tmp_path / "blobs"), "nonce": "the nonce"}).seen


def test_only_what_is_shared_is_looked_at(tmp_path: Path, blobs: Blobs) -> None:
    told = blobs.write_probe()
    for shared, seen in (
        ([], False),
        ([str(tmp_path / "home" / "blo")], False),
        ([str(tmp_path / "home")], True),
        (None, True),
    ):
        nearby = Nearby(shared)
        nearby.prove(told)
        assert nearby.seen == seen
    assert not near(tmp_path, None).seen


def test_a_blob_that_is_not_what_its_digest_says_is_not_taken(tmp_path: Path, blobs: Blobs) -> None:
    digest = blobs.put_bytes(b"content")
    blobs.path(digest).write_bytes(b"contents")
    target = tmp_path / "copy"
    assert not near(tmp_path, blobs.write_probe()).copy(digest, target)
    assert list(tmp_path.iterdir()) == [tmp_path / "home"]


def test_what_a_job_may_not_have_is_not_copied_either(tmp_path: Path, blobs: Blobs) -> None:
    digest = blobs.put_bytes(b"content")

    class Asked(Transfer):
        allowed = True

        def has(self, digest: str, claim: Claim) -> bool:
            if not self.allowed:
                raise TransferFailed("not_your_artifact", True, 403)
            return True

    transfer = Asked("token")
    transfer.copy = near(tmp_path, blobs.write_probe()).copy
    transfer.get("/path", digest, tmp_path / "one", Claim("job", 1))
    assert (tmp_path / "one").read_bytes() == b"content"
    transfer.allowed = False
    transfer.get("/path", digest, tmp_path / "named", Claim("job", 1), named=True)
    assert (tmp_path / "named").read_bytes() == b"content", "the server itself has told the job of it"
    with pytest.raises(TransferFailed, match="not_your_artifact"):
        transfer.get("/path", digest, tmp_path / "two", Claim("job", 1))
    assert not (tmp_path / "two").exists()


def test_a_file_is_laid_beside_its_place_for_as_long_as_it_takes(tmp_path: Path, blobs: Blobs) -> None:
    nearby = near(tmp_path, blobs.write_probe())
    source = tmp_path / "saved"
    source.write_bytes(b"content")
    digest = digest_of(b"content")
    with nearby.laid(digest, source) as laid:
        assert laid is not None
        (path,) = (tmp_path / "home" / "blobs").glob("*/.*")
        assert path.name == f".{hex_of(digest)}.{laid.token}.laid"
        assert path.parent.name == hex_of(digest)[:2]
        assert path.read_bytes() == b"content"
        assert path.stat().st_ino != source.stat().st_ino, "what is done to it here stays here"
        assert laid.size == 7
    assert not path.exists()


def test_nothing_is_laid_where_the_server_takes_nothing(tmp_path: Path, blobs: Blobs) -> None:
    told = blobs.write_probe()
    del told["laid"]
    source = tmp_path / "saved"
    source.write_bytes(b"content")
    for nearby in (near(tmp_path, told), near(tmp_path, None)):
        with nearby.laid(digest_of(b"content"), source) as laid:
            assert laid is None
    with pytest.raises(FileNotFoundError), nearby.laid(digest_of(b""), tmp_path / "none"):
        pass


def test_beside_the_server_a_value_is_read_as_it_lies_there_while_it_is_what_it_was(
    tmp_path: Path, blobs: Blobs
) -> None:
    digest = blobs.put_bytes(b"content")
    nearby = Nearby(None)
    assert nearby.find(digest) is None
    nearby.prove(blobs.write_probe())
    assert nearby.known(digest) is None, "nobody has read it yet"
    assert nearby.find(digest) == nearby.known(digest) == blobs.path(digest)
    blobs.path(digest).write_bytes(b"another")
    assert nearby.known(digest) is None
    assert nearby.find(digest) is None
    assert nearby.find("sha256:" + "0" * 64) is None


def test_what_the_server_has_verified_is_known_until_it_changes(tmp_path: Path, blobs: Blobs) -> None:
    digest = blobs.put_bytes(b"content")
    nearby = Nearby(None)
    nearby.prove(blobs.write_probe())
    nearby.told(digest, look(blobs.path(digest)))
    assert nearby.known(digest) == blobs.path(digest)
    blobs.path(digest).unlink()
    assert nearby.known(digest) is None


def test_only_the_servers_own_worker_is_beside_it(tmp_path: Path, blobs: Blobs) -> None:
    told = blobs.write_probe()
    assert not near(tmp_path, told).beside
    nearby = Nearby(None)
    assert not nearby.beside
    nearby.prove(told)
    assert nearby.beside


def test_a_file_is_laid_by_a_second_name_for_as_long_as_it_takes(tmp_path: Path, blobs: Blobs) -> None:
    nearby = Nearby(None)
    source = tmp_path / "saved"
    source.write_bytes(b"content")
    digest = digest_of(b"content")
    with nearby.linked(digest, source) as laid:
        assert laid is None, "nothing is proved"
    nearby.prove(blobs.write_probe())
    with nearby.linked(digest, source) as laid:
        assert laid is not None
        (path,) = (tmp_path / "home" / "blobs").glob("*/.*")
        assert path.name == f".{hex_of(digest)}.{laid.token}.laid"
        assert path.samefile(source)
        assert laid.size == 7
    assert not path.exists()
    assert source.exists()
    with nearby.linked(digest, tmp_path / "none") as laid:
        assert laid is None
    assert list((tmp_path / "home" / "blobs").glob("*/.*")) == []


def test_from_another_file_system_nothing_is_laid_by_a_second_name(tmp_path: Path, blobs: Blobs) -> None:
    nearby = Nearby(None)
    nearby.prove(blobs.write_probe())
    with small_disk(tmp_path / "disk", 2) as disk:
        (disk / "saved").write_bytes(b"content")
        with nearby.linked(digest_of(b"content"), disk / "saved") as laid:
            assert laid is None


def test_a_directory_that_cannot_be_written_is_said_once_and_asked_of_the_next_server_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = tmp_path / "saved"
    source.write_bytes(b"content")
    with small_disk(tmp_path / "disk", 2) as disk:
        blobs = Blobs(disk / "blobs")
        told = blobs.write_probe()
        nearby = Nearby(None)
        nearby.prove(told)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        for _ in range(3):
            with nearby.laid(digest_of(b"content"), source) as laid:
                assert laid is None
            assert not nearby.takes
            nearby.prove(told)
        assert [record.message for record in caplog.records if "not laid" in record.message] == [
            f"files are sent, not laid in {disk / 'blobs'}: Read-only file system"
        ]
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        nearby.prove(blobs.write_probe())
        assert nearby.takes
