"""Content-addressed files: whole or not there, verified on arrival."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farhand.blobs import Blobs, arriving, digest_of
from farhand.blobs import landing as landing_module
from farhand.blobs.arriving import Streamed
from farhand.errors import DigestMismatch, NotFound, Usage

pytestmark = pytest.mark.anyio

CONTENT = b"a table of the weather"
DIGEST = digest_of(CONTENT)


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "blobs")


def files(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]


def in_pieces(*pieces: bytes) -> Streamed:
    async def chunks() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return Streamed(chunks())


@given(st.binary(max_size=200))
def test_a_digest_is_the_sha256_of_the_content(content: bytes) -> None:
    assert digest_of(content) == f"sha256:{hashlib.sha256(content).hexdigest()}"


def test_what_was_kept_is_found_under_its_digest(blobs: Blobs) -> None:
    assert blobs.put_bytes(CONTENT) == DIGEST
    assert blobs.has(DIGEST)
    assert blobs.size(DIGEST) == len(CONTENT)
    assert blobs.path(DIGEST).read_bytes() == CONTENT


def test_the_same_content_is_kept_once(blobs: Blobs, tmp_path: Path) -> None:
    blobs.put_bytes(CONTENT)
    before = blobs.path(DIGEST).stat().st_ino
    assert blobs.put_bytes(CONTENT) == DIGEST
    assert blobs.path(DIGEST).stat().st_ino == before
    assert len(files(tmp_path)) == 1


def test_an_empty_blob_is_a_blob(blobs: Blobs) -> None:
    assert blobs.size(blobs.put_bytes(b"")) == 0


def test_the_directory_is_private(blobs: Blobs, tmp_path: Path) -> None:
    assert stat.S_IMODE((tmp_path / "blobs").stat().st_mode) == 0o700


def test_what_is_not_here_is_named(blobs: Blobs) -> None:
    assert not blobs.has(DIGEST)
    with pytest.raises(NotFound, match=DIGEST):
        blobs.path(DIGEST)
    with pytest.raises(NotFound):
        blobs.size(DIGEST)


@pytest.mark.parametrize(
    "text",
    ["", "sha256:", "sha256:../../../etc/passwd", "md5:" + "0" * 64, "sha256:" + "A" * 64, DIGEST + "\n"],
)
def test_what_is_no_digest_names_no_file(blobs: Blobs, text: str) -> None:
    with pytest.raises(Usage, match="is not a digest"):
        blobs.has(text)


async def test_a_blob_that_arrives_in_pieces_is_kept_whole(blobs: Blobs) -> None:
    assert await blobs.write(in_pieces(CONTENT[:5], b"", CONTENT[5:]), DIGEST) == len(CONTENT)
    assert blobs.path(DIGEST).read_bytes() == CONTENT


async def test_other_bytes_than_promised_leave_nothing(blobs: Blobs, tmp_path: Path) -> None:
    with pytest.raises(DigestMismatch, match=digest_of(b"other")):
        await blobs.write(in_pieces(b"other"), DIGEST)
    assert not blobs.has(DIGEST)
    assert files(tmp_path) == []


async def test_a_sender_that_breaks_off_leaves_nothing(blobs: Blobs, tmp_path: Path) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield CONTENT[:5]
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await blobs.write(Streamed(broken()), DIGEST)
    assert files(tmp_path) == []


async def test_a_blob_is_not_there_before_its_last_byte(blobs: Blobs) -> None:
    half_way, go_on = anyio.Event(), anyio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield CONTENT[:5]
        half_way.set()
        await go_on.wait()
        yield CONTENT[5:]

    async with anyio.create_task_group() as group:
        group.start_soon(blobs.write, Streamed(slow()), DIGEST)
        await half_way.wait()
        assert not blobs.has(DIGEST)
        go_on.set()
    assert blobs.has(DIGEST)


async def test_two_senders_of_the_same_content_do_not_disturb_each_other(
    blobs: Blobs, tmp_path: Path
) -> None:
    """B103: each writes beside, and the last to rename puts the same bytes there."""
    async with anyio.create_task_group() as group:
        for cut in (3, 7):
            group.start_soon(blobs.write, in_pieces(CONTENT[:cut], CONTENT[cut:]), DIGEST)
    assert blobs.path(DIGEST).read_bytes() == CONTENT
    assert len(files(tmp_path)) == 1


def test_a_file_beside_the_store_is_adopted_by_its_content(blobs: Blobs, tmp_path: Path) -> None:
    file = tmp_path / "beside"
    file.write_bytes(CONTENT)
    blobs.adopt(file, DIGEST)
    assert blobs.path(DIGEST).read_bytes() == CONTENT
    assert file.exists()


def test_a_file_with_other_content_is_not_adopted(blobs: Blobs, tmp_path: Path) -> None:
    file = tmp_path / "beside"
    file.write_bytes(b"other")
    with pytest.raises(DigestMismatch):
        blobs.adopt(file, DIGEST)
    assert files(tmp_path) == []


def test_adopting_what_is_gone_or_here_already_does_nothing(blobs: Blobs, tmp_path: Path) -> None:
    blobs.adopt(tmp_path / "gone", DIGEST)
    assert not blobs.has(DIGEST)
    blobs.put_bytes(CONTENT)
    blobs.adopt(tmp_path / "gone", DIGEST)
    assert blobs.has(DIGEST)


async def test_small_pieces_are_written_many_at_a_time_and_the_last_ones_with_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arriving, "HELD_BYTES_MAX", 4)
    steps: list[Any] = []
    await in_pieces(b"ab", b"", b"cde", b"f").pour(steps.append, lambda: steps.append("end"))
    await in_pieces().pour(steps.append, lambda: steps.append("end"))
    assert steps == [[b"ab", b"", b"cde"], [b"f"], "end", "end"]


async def test_what_a_broken_sender_brought_of_a_part_stays(blobs: Blobs) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield CONTENT[:3]
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await blobs.parts.append(DIGEST, "job", 0, Streamed(broken()))
    assert blobs.parts.received(DIGEST, "job") == 3


async def test_parts_are_hashed_as_they_come_and_read_again_only_when_that_was_forgotten(
    blobs: Blobs, tmp_path: Path
) -> None:
    """A server that was restarted in between has to read what had come."""
    await blobs.parts.append(DIGEST, "job", 0, in_pieces(CONTENT[:5]))
    await blobs.parts.append(DIGEST, "job", 5, in_pieces(CONTENT[5:9], CONTENT[9:]))
    await blobs.parts.finish(DIGEST, "job")
    assert blobs.path(DIGEST).read_bytes() == CONTENT
    other = digest_of(CONTENT * 2)
    await blobs.parts.append(other, "job", 0, in_pieces(CONTENT))
    restarted = Blobs(tmp_path / "blobs")
    await restarted.parts.append(other, "job", len(CONTENT), in_pieces(CONTENT))
    await restarted.parts.finish(other, "job")
    assert restarted.path(other).read_bytes() == CONTENT * 2


async def test_a_part_that_was_changed_on_the_disk_is_noticed(blobs: Blobs, tmp_path: Path) -> None:
    await blobs.parts.append(DIGEST, "job", 0, in_pieces(CONTENT[:5]))
    (unfinished,) = files(tmp_path)
    unfinished.write_bytes(b"x")
    await blobs.parts.append(DIGEST, "job", 1, in_pieces(CONTENT[1:]))
    with pytest.raises(DigestMismatch):
        await blobs.parts.finish(DIGEST, "job")
    assert files(tmp_path) == []


async def test_content_and_name_are_on_disk_before_it_counts_as_kept(
    blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First the content, then the name, then the directory with the name in it."""
    steps: list[str] = []
    rename = Path.rename

    def renamed(path: Path, target: Path) -> Path:
        steps.append("rename")
        return rename(path, target)

    monkeypatch.setattr(landing_module, "_sync", lambda _: steps.append("content"))
    monkeypatch.setattr(landing_module, "sync_directory", lambda path: steps.append(path.name))
    monkeypatch.setattr(Path, "rename", renamed)
    digest = digest_of(CONTENT)
    assert await blobs.write(in_pieces(CONTENT), digest) == len(CONTENT)
    directory = blobs.path(digest).parent
    assert steps == [directory.parent.name, "content", "rename", directory.name]


async def test_a_large_blob_is_written_as_it_comes(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arriving, "HELD_BYTES_MAX", 4)
    pieces = [CONTENT[i : i + 5] for i in range(0, 22, 5)]
    assert await blobs.write(in_pieces(*pieces), DIGEST) == len(CONTENT)
    assert blobs.path(DIGEST).read_bytes() == CONTENT


@pytest.mark.parametrize("size", [1, 300_000])
async def test_chunks_of_any_size_are_kept_in_their_order(blobs: Blobs, size: int) -> None:
    content = bytes(range(256)) * (size // 4 + 1)
    chunks = [content[start : start + size] for start in range(0, len(content), size)]
    assert await blobs.write(in_pieces(*chunks), digest_of(content)) == len(content)
    assert blobs.path(digest_of(content)).read_bytes() == content
