"""The worker's cache of blobs: bounded, verified, and nothing in use is taken away."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from farhand_worker.blobs import UNFINISHED_S, BlobCache, NotFetched


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def put(cache: BlobCache, content: bytes, used_at: int = 0) -> str:
    """A blob as a download leaves it, last used at a moment."""
    digest = digest_of(content)
    cache.place(digest).write_bytes(content)
    if used_at:
        os.utime(cache.place(digest), (used_at, used_at))
    cache.arrived(digest)
    return digest


def raising(error: OSError) -> Callable[..., None]:
    """A function that fails."""

    def fail(*_: object) -> None:
        raise error

    return fail


def here(cache: BlobCache, *digests: str) -> list[bool]:
    return [cache.place(digest).exists() for digest in digests]


def test_what_went_unused_for_longest_makes_room_first(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, bytes_max=25)
    one, two = put(cache, b"1" * 10, 1000), put(cache, b"2" * 10, 2000)
    assert cache.find(one), "it is used, and counts as used now"
    three = put(cache, b"3" * 10)
    assert here(cache, one, two, three) == [True, False, True]


@pytest.mark.fault("3.46")
def test_a_cache_full_of_blobs_in_use_grows_until_they_are_let_go(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, bytes_max=25)
    kept = []
    for number in range(4):
        content = bytes([number]) * 10
        cache.pin(digest_of(content), number)
        cache.pin(digest_of(content), "another job")
        kept.append(put(cache, content, 1000 + number))
    assert here(cache, *kept) == [True] * 4
    for number in range(4):
        cache.release(number)
    cache.trim()
    assert here(cache, *kept) == [True] * 4, "one of two jobs still uses them"
    cache.release("another job")
    cache.trim()
    assert here(cache, *kept) == [False, False, True, True]


@pytest.mark.fault("3.45")
@pytest.mark.parametrize(
    "spoil", [lambda path: os.truncate(path, 3), lambda path: path.write_bytes(b"!" * 10)]
)
def test_a_blob_that_was_changed_is_not_found_and_is_deleted(tmp_path: Path, spoil: object) -> None:
    """B102: a file that was cut short is noticed, and fetched again."""
    cache = BlobCache(tmp_path)
    digest = put(cache, b"0123456789")
    assert cache.find(digest)
    spoil(cache.place(digest))
    assert not cache.find(digest)
    assert here(cache, digest) == [False]


def test_what_broke_off_and_was_not_taken_up_for_a_day_is_deleted(tmp_path: Path) -> None:
    """B100: until then it goes on where it was."""
    old, new = (tmp_path / f".arriving-{name}" for name in ("old", "new"))
    for path in (old, new):
        path.write_bytes(b"half")
    a_day_ago = time.time() - UNFINISHED_S - 1
    os.utime(old, (a_day_ago, a_day_ago))
    BlobCache(tmp_path).trim()
    assert [path.exists() for path in (old, new)] == [False, True]


def test_what_an_earlier_process_left_is_read_before_it_is_believed(tmp_path: Path) -> None:
    good, bad = put(BlobCache(tmp_path), b"good"), put(BlobCache(tmp_path), b"bad")
    (tmp_path / bad[7:]).write_bytes(b"worse")
    later = BlobCache(tmp_path)
    assert later.find(good)
    assert not later.find(bad)


def test_a_file_is_taken_without_a_copy_and_counts(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path / "cache", bytes_max=15)
    source = tmp_path / "saved"
    source.write_bytes(b"x" * 10)
    old = put(cache, b"o" * 10, 1000)
    digest = f"sha256:{hashlib.sha256(b'x' * 10).hexdigest()}"
    cache.take(digest, source)
    assert source.stat().st_nlink == 2
    assert here(cache, old, digest) == [False, True]


@pytest.mark.parametrize("links", [True, False], ids=["linked", "copied"])
def test_the_same_content_saved_by_many_jobs_at_once_is_kept_for_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    """B103: whoever finds that another has kept it meanwhile has not failed, and it is whole."""
    cache = BlobCache(tmp_path / "cache")
    jobs = 8
    together = threading.Barrier(jobs)
    if not links:
        monkeypatch.setattr(os, "link", raising(OSError(errno.EXDEV, "another filesystem")))

    def save(job: int, content: bytes) -> None:
        source = tmp_path / f"saved-{job}"
        source.write_bytes(content)
        together.wait(10)
        cache.take(digest_of(content), source)

    with ThreadPoolExecutor(jobs) as threads:
        for number in range(40):
            content = f"{number}".encode() * 100
            saves = [threads.submit(save, job, content) for job in range(jobs)]
            assert [each.result() for each in saves] == [None] * jobs
            assert cache.place(digest_of(content)).read_bytes() == content
    assert len(list((tmp_path / "cache").iterdir())) == 40


def test_what_makes_room_for_another_as_soon_as_it_was_saved_fails_nobody(tmp_path: Path) -> None:
    """B102: no job uses it yet, so that another thread may delete it at any moment."""
    cache = BlobCache(tmp_path / "cache", bytes_max=0)
    digest = digest_of(b"saved")
    cache.arrived(digest)
    assert not cache.find(digest)


def test_many_threads_on_a_tiny_cache_get_what_they_ask_for_or_nothing(tmp_path: Path) -> None:
    """B102: nobody misses a file that another makes room with, and what is kept is what its digest says."""
    cache = BlobCache(tmp_path, bytes_max=500)
    contents = [bytes([number]) * 100 for number in range(20)]

    def use(turn: int) -> None:
        content = contents[turn * 7 % 20]
        digest = digest_of(content)
        cache.pin(digest, turn)
        if not cache.find(digest):
            beside = tmp_path / f".arriving-{turn}"
            beside.write_bytes(content)
            beside.replace(cache.place(digest))
            cache.arrived(digest)
        assert cache.place(digest).read_bytes() == content
        cache.release(turn)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(use, range(400)))
    cache.trim()
    for path in tmp_path.iterdir():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 500


@pytest.mark.parametrize("digest", ["", "sha256:", "sha256:../../etc/passwd", "md5:" + "0" * 64])
def test_what_is_no_digest_has_no_place(tmp_path: Path, digest: str) -> None:
    with pytest.raises(NotFetched, match="is no digest"):
        BlobCache(tmp_path).place(digest)
