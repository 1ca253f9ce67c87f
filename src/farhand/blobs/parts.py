"""Blobs that arrive in parts, each in a request of its own, and go on where they were broken off.

What has arrived lies in a file beside the blob's place, one for each sender, so that what one sends wrongly
spoils nobody else's. It becomes the blob when it is whole and its digest is right; whatever never gets there
goes with the other unfinished files.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterable, Callable
from pathlib import Path

from ..errors import Conflict
from .landing import check, gathered

_READ_BYTES = 1024 * 1024


class Parts:
    """The unfinished blobs of one directory. ``place`` tells where a digest's blob belongs."""

    def __init__(self, place: Callable[[str], Path]) -> None:
        self._place = place
        self._busy: set[Path] = set()

    def received(self, digest: str, sender: str) -> int:
        """How many bytes of a blob have arrived from a sender."""
        try:
            return self._path(digest, sender).stat().st_size
        except FileNotFoundError:
            return 0

    async def append(self, digest: str, sender: str, start: int, chunks: AsyncIterable[bytes]) -> int:
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
            path.parent.mkdir(mode=0o700, exist_ok=True)
            with path.open("ab") as file:
                async for chunk in gathered(chunks):
                    await asyncio.to_thread(file.write, chunk)
            return self.received(digest, sender)
        finally:
            self._busy.discard(path)

    async def finish(self, digest: str, sender: str) -> None:
        """Make the blob of what has arrived. Raises `DigestMismatch`; then nothing of it is left."""
        await asyncio.to_thread(self._settle, self._path(digest, sender), digest)

    def _settle(self, path: Path, digest: str) -> None:
        found = hashlib.sha256()
        try:
            with path.open("rb") as file:
                while piece := file.read(_READ_BYTES):
                    found.update(piece)
                check(found.hexdigest(), digest)
                os.fsync(file.fileno())
            path.rename(self._place(digest))
        finally:
            path.unlink(missing_ok=True)

    def _path(self, digest: str, sender: str) -> Path:
        place = self._place(digest)
        return place.with_name(f".{place.name}.{hashlib.sha256(sender.encode()).hexdigest()[:16]}.part")
