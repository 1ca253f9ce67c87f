"""Files laid in the server's directory are taken for what they are, never for what is said of them."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from farhand.blobs import Blobs, digest_of
from farhand.blobs import laid as laid_module
from farhand.errors import Conflict, DigestMismatch, NotFound, Usage
from farhand_worker.nearby import Nearby
from tests.harness.disks import small_disk

pytestmark = pytest.mark.anyio

CONTENT = b"a table of the weather"
DIGEST = digest_of(CONTENT)
TOKEN = "0123456789abcdef" * 2


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    made = Blobs(tmp_path / "blobs")
    made.write_probe()
    return made


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the file is laid."""
    name = DIGEST.removeprefix("sha256:")
    return tmp_path / "blobs" / name[:2] / f".{name}.{TOKEN}.laid"


def write(place: Path, content: bytes = CONTENT, mode: int = 0o600) -> None:
    place.write_bytes(content)
    place.chmod(mode)


def written_at(place: Path) -> float:
    return place.stat().st_mtime


def is_file(place: Path) -> bool:
    return place.is_symlink() or place.is_file()


def kept(blobs: Blobs) -> tuple[bytes, int]:
    """The blob's content, and its permissions."""
    return blobs.path(DIGEST).read_bytes(), stat.S_IMODE(blobs.path(DIGEST).stat().st_mode)


def files(blobs: Path) -> list[str]:
    return sorted(path.name for path in blobs.parent.rglob("*") if not path.is_dir() or path.is_symlink())


async def test_a_file_that_is_what_its_digest_says_becomes_the_blob(blobs: Blobs, place: Path) -> None:
    write(place, mode=0o666)
    assert await blobs.laid.settle(DIGEST, TOKEN, len(CONTENT))
    assert kept(blobs) == (CONTENT, 0o600)
    assert files(place) == [DIGEST.removeprefix("sha256:")]


@pytest.mark.parametrize(
    ("content", "size", "told"),
    [
        (b"another table of weather", 24, "not sha256:"),
        (CONTENT, len(CONTENT) - 1, "has 22 bytes, not 21"),
        (CONTENT, len(CONTENT) + 1, "has 22 bytes, not 23"),
        (b"", 0, "not sha256:"),
    ],
)
async def test_other_content_or_another_size_is_deleted(
    blobs: Blobs, place: Path, content: bytes, size: int, told: str
) -> None:
    write(place, content)
    with pytest.raises(DigestMismatch, match=told):
        await blobs.laid.settle(DIGEST, TOKEN, size)
    assert files(place) == []


def _linked(place: Path) -> None:
    (place.parent / "other").write_bytes(CONTENT)
    place.symlink_to("other")


def _named_twice(place: Path) -> None:
    place.write_bytes(CONTENT)
    os.link(place, place.parent / "other")


def _a_pipe(place: Path) -> None:
    os.mkfifo(place)


def _a_directory(place: Path) -> None:
    place.mkdir()


@pytest.mark.parametrize("lay", [_linked, _named_twice, _a_pipe, _a_directory])
async def test_what_is_no_file_of_its_own_is_not_taken(
    blobs: Blobs, place: Path, lay: Callable[[Path], None]
) -> None:
    lay(place)
    with pytest.raises(Conflict, match="send it instead"):
        await blobs.laid.settle(DIGEST, TOKEN, len(CONTENT))
    assert not blobs.has(DIGEST)
    assert not is_file(place)


async def test_a_file_of_another_user_is_not_taken(
    blobs: Blobs, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(place)
    another = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: another)
    with pytest.raises(Conflict, match="the server's own user"):
        await blobs.laid.settle(DIGEST, TOKEN, len(CONTENT))


@pytest.mark.parametrize(
    "token", ["", "../../../../etc/passwd", TOKEN.upper(), TOKEN + "0", TOKEN[:-1], "*" * 32]
)
async def test_what_is_no_token_names_no_file(blobs: Blobs, place: Path, token: str) -> None:
    with pytest.raises(Usage, match="hexadecimal"):
        await blobs.laid.settle(DIGEST, token, 1)
    with pytest.raises(Usage, match="is not a digest"):
        await blobs.laid.settle("sha256:../../x", TOKEN, 1)


async def test_a_file_that_is_not_seen_here_is_asked_for_otherwise(blobs: Blobs) -> None:
    with pytest.raises(NotFound, match="send it instead"):
        await blobs.laid.settle(DIGEST, TOKEN, 1)


async def test_one_who_asks_is_told_in_time_that_a_large_file_is_still_being_read(
    blobs: Blobs, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    reading = laid_module._hash_of

    def slowly(fd: int, size: int) -> str:
        go_on.wait(10)
        return reading(fd, size)

    monkeypatch.setattr(laid_module, "_hash_of", slowly)
    monkeypatch.setattr(laid_module, "ANSWER_S", 0.01)
    write(place)
    for _ in range(2):
        assert not await blobs.laid.settle(DIGEST, TOKEN, len(CONTENT))
    monkeypatch.setattr(laid_module, "ANSWER_S", 10.0)
    last = asyncio.ensure_future(blobs.laid.settle(DIGEST, TOKEN, len(CONTENT)))
    go_on.set()
    assert await last
    assert blobs.has(DIGEST)


def test_what_a_killed_worker_left_goes_with_the_other_unfinished_files(blobs: Blobs, place: Path) -> None:
    write(place, CONTENT[:5])
    blobs.sweep_partial(written_at(place) - 1)
    assert files(place), "it may still be written"
    blobs.sweep_partial(written_at(place) + 1)
    assert files(place) == []


@pytest.mark.fault("3.48")
def test_a_disk_that_fills_in_the_middle_leaves_nothing_laid(tmp_path: Path) -> None:
    source = tmp_path / "saved"
    source.write_bytes(os.urandom(3_000_000))
    with small_disk(tmp_path / "disk", 2) as disk:
        blobs = Blobs(disk / "blobs")
        nearby = Nearby(None)
        nearby.prove(blobs.write_probe())
        with nearby.laid(DIGEST, source) as laid:
            assert laid is None
        assert nearby.takes, "there may be room for the next"
        assert [path.name for path in (disk / "blobs").rglob(".*")] == []
