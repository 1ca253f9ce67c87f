"""Blobs that arrive in parts, each in a request of its own, and go on where they were broken off.

What has arrived lies in a file beside the blob's place, one for each sender, so that what one sends wrongly
spoils nobody else's. It becomes the blob when it is whole and its digest is right; whatever never gets there
goes with the other unfinished files.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Sequence
from io import FileIO
from pathlib import Path
from typing import Any

from ..errors import Conflict
from .arriving import Body
from .landing import PIECE_BYTES, check, make_directory, settle, write_all

_HASHES_MAX = 256
"""Unfinished blobs whose digest so far is remembered; that of any other is found by reading it again."""


class Parts:
    """The unfinished blobs of one directory. ``place`` tells where a digest's blob belongs."""

    def __init__(self, place: Callable[[str], Path]) -> None:
        self._place = place
        self._busy: set[Path] = set()
        self._hashes: dict[Path, tuple[int, Any]] = {}

    def received(self, digest: str, sender: str) -> int:
        """How many bytes of a blob have arrived from a sender."""
        try:
            return self._path(digest, sender).stat().st_size
        except FileNotFoundError:
            return 0

    async def append(self, digest: str, sender: str, start: int, body: Body) -> int:
        """Add the bytes from ``start`` on; returns how many there are then.

        Raises `Conflict` when ``start`` is not where the last part ended, or while another part of the same
        sender arrives. What came before a broken connection stays.
        """
        path = self._path(digest, sender)
        if path in self._busy:
            raise Conflict(f"another part of {digest} is arriving; ask again in a moment")
        here = self.received(digest, sender)
        if start != here:
            raise Conflict(f"{here} bytes of {digest} are here; go on from there", received=here)
        self._busy.add(path)
        try:
            make_directory(path.parent)
            with path.open("ab", buffering=0) as file:
                await body.pour(lambda pieces: self._add(path, file, pieces), lambda: None)
            return self.received(digest, sender)
        finally:
            self._busy.discard(path)

    async def finish(self, digest: str, sender: str) -> None:
        """Make the blob of what has arrived. Raises `DigestMismatch`; then nothing of it is left."""
        await asyncio.to_thread(self._settle, self._path(digest, sender), digest)

    def _add(self, path: Path, file: FileIO, chunks: Sequence[bytes | memoryview]) -> None:
        """Write what came next, and go on with the digest of what came before where that is known."""
        begin = os.fstat(file.fileno()).st_size
        size, found = self._hashes.pop(path, (0, hashlib.sha256()))
        added = write_all(file, chunks, found)
        if size == begin:
            self._hashes[path] = begin + added, found
            while len(self._hashes) > _HASHES_MAX:
                self._hashes.pop(next(iter(self._hashes)))

    def _settle(self, path: Path, digest: str) -> None:
        size, found = self._hashes.pop(path, (-1, None))
        try:
            with path.open("rb", buffering=0) as file:
                if size != os.fstat(file.fileno()).st_size:
                    found = hashlib.sha256()
                    while piece := file.read(PIECE_BYTES):
                        found.update(piece)
                check(found.hexdigest(), digest)
                settle(file.fileno(), path, self._place(digest))
        finally:
            path.unlink(missing_ok=True)

    def _path(self, digest: str, sender: str) -> Path:
        place = self._place(digest)
        return place.with_name(f".{place.name}.{hashlib.sha256(sender.encode()).hexdigest()[:16]}.part")
