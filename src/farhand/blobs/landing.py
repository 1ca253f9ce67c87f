"""A blob on its way in: written beside its place, checked, synced, renamed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterable, Sequence
from io import FileIO
from pathlib import Path
from typing import Any

from ..errors import DigestMismatch

PIECE_BYTES = 1024 * 1024
_CHUNKS_APART_MAX = 16

_sync = getattr(os, "fdatasync", os.fsync)  # macOS has only the latter


def write_all(file: FileIO, chunks: Sequence[bytes | memoryview], found: Any) -> int:
    """Write chunks and add them to a hash; how many bytes they were. Small ones are put together first."""
    if len(chunks) > _CHUNKS_APART_MAX:
        chunks = (b"".join(chunks),)
    for chunk in chunks:
        found.update(chunk)
        rest = memoryview(chunk)
        while rest:
            rest = rest[file.write(rest) :]
    return sum(map(len, chunks))


class Landing:
    """A blob on its way in; gone without trace unless it settles. Its file is made for the first piece."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._path = place.with_name(f".{place.name}.{secrets.token_hex(6)}")
        self._file: FileIO | None = None
        self._hash = hashlib.sha256()
        self._settled = False
        self.size = 0

    def __enter__(self) -> Landing:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is None:
            return
        try:
            self._file.close()
        finally:
            if not self._settled:
                self._path.unlink(missing_ok=True)

    def write(self, chunks: Sequence[bytes | memoryview]) -> None:
        """Add what came next."""
        self.size += write_all(self._opened(), chunks, self._hash)

    def settle(self, digest: str) -> None:
        """Make it the blob, on disk when this returns. Raises `DigestMismatch`."""
        check(self._hash.hexdigest(), digest)
        settle(self._opened().fileno(), self._path, self._place)
        self._settled = True

    def _opened(self) -> FileIO:
        if self._file is None:
            try:
                self._file = self._path.open("xb", buffering=0)
            except FileNotFoundError:
                make_directory(self._path.parent)
                self._file = self._path.open("xb", buffering=0)
        return self._file


def land(place: Path, pieces: Iterable[Sequence[bytes]], digest: str) -> int:
    """Keep a blob that is here already, in pieces; returns its size. Raises `DigestMismatch`."""
    with Landing(place) as landing:
        for piece in pieces:
            landing.write(piece)
        landing.settle(digest)
        return landing.size


def settle(fd: int, path: Path, place: Path) -> None:
    """Give a checked file its name, on disk when this returns: first its content, then the name.

    Files that settle at the same time share the file system's own commits.
    """
    _sync(fd)
    path.rename(place)
    sync_directory(place.parent)


def make_directory(directory: Path) -> None:
    """Make one that is missing; its name is on disk when this returns."""
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
        sync_directory(directory.parent)


def sync_directory(directory: Path) -> None:
    """Put the names in a directory on disk."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def check(found: str, digest: str) -> None:
    """Raises `DigestMismatch` unless ``found``, in hexadecimal, is the digest."""
    if f"sha256:{found}" != digest:
        raise DigestMismatch(f"the bytes that arrived are sha256:{found}, not {digest}; send them again")
