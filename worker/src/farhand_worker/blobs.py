"""The blobs a worker has fetched: verified, bounded, and those that went unused for longest go first.

A blob that a job has been given is pinned until that job is over, so that its path stays good. The bound
holds for all the others; a cache full of pinned blobs grows beyond it rather than fail a job.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from pathlib import Path
from typing import Dict, Hashable, List, Set, Tuple

from .digests import file_digest

BYTES_MAX = 1024 * 1024 * 1024

UNFINISHED_S = 24 * 3600.0
"""A transfer that broke off may go on where it was for so long."""

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})\Z")
Seen = Tuple[int, int, int]
"""Size, time of the last change and number of a file."""


class NotFetched(Exception):
    """What a job needs could not be brought here; the message says what and why.

    ``refused``: the server gave it not to this job, and may give it to another.
    """

    def __init__(self, message: str, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


class BlobCache:
    """One directory of blobs; every method may be called in any thread."""

    def __init__(self, directory: Path, bytes_max: int = BYTES_MAX) -> None:
        self._directory = directory
        self._bytes_max = bytes_max
        self._pins: Dict[str, Set[Hashable]] = {}
        self._pinning = threading.Lock()  # what is pinned in this moment is not deleted in the next
        self._copying = threading.Lock()
        self._verified: Dict[str, Seen] = {}
        self._bytes = bytes_max  # until the first look around counts them
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def place(self, digest: str) -> Path:
        """Where a blob belongs. Raises `NotFetched` for what is no digest."""
        return self._directory / hex_of(digest)

    def find(self, digest: str) -> bool:
        """Whether the blob is here, as it should be; it counts as used now.

        Its content is read when this process sees it for the first time, or when the file has changed since.
        One that is not what its digest says is deleted.
        """
        place = self.place(digest)
        try:
            seen = look(place)
            if self._verified.get(digest) != seen:
                if file_digest(place) != digest:
                    place.unlink()
                    return False
                self._verified[digest] = seen
            os.utime(place)
            self._verified[digest] = look(place)
        except FileNotFoundError:
            return False
        return True

    def arrived(self, digest: str) -> None:
        """The blob has just been put in its place, verified; others make room."""
        try:
            seen = look(self.place(digest))
        except FileNotFoundError:  # no job uses it, and it has made room for another already
            return
        self._verified[digest] = seen
        self._bytes += seen[0]
        if self._bytes > self._bytes_max:
            self.trim()

    def take(self, digest: str, source: Path) -> None:
        """Keep a verified file too, without copying it where that is possible.

        Several jobs may have saved the same content, and this is called for all of them at once.
        """
        place = self.place(digest)
        try:
            os.link(source, place)
        except FileExistsError:
            return
        except OSError:  # another filesystem, or one without links
            with self._copying:
                if place.exists():
                    return
                beside = place.with_name(f".taken-{place.name}")
                shutil.copyfile(source, beside)
                os.replace(beside, place)
        self.arrived(digest)

    def pin(self, digest: str, user: Hashable) -> None:
        """The blob stays until ``user`` is released."""
        with self._pinning:
            self._pins.setdefault(hex_of(digest), set()).add(user)

    def release(self, user: Hashable) -> None:
        """``user`` needs nothing any more."""
        with self._pinning:
            for name in [name for name, users in self._pins.items() if user in users]:
                self._pins[name].discard(user)
                if not self._pins[name]:
                    del self._pins[name]

    def trim(self) -> None:
        """Delete what went unused for longest until the bound holds, or only pinned blobs are left.

        What has not all come is deleted when nothing of it came for `UNFINISHED_S`.
        """
        found: List[Tuple[int, int, Path]] = []
        given_up = time.time() - UNFINISHED_S
        for entry in os.scandir(self._directory):
            try:
                status = entry.stat()
                if entry.name.startswith(".") and status.st_mtime < given_up:
                    os.unlink(entry.path)
                    continue
            except FileNotFoundError:
                continue
            found.append((status.st_mtime_ns, status.st_size, Path(entry.path)))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self._bytes_max:
                break
            if not path.name.startswith(".") and self._unlink(path):
                total -= size
        self._bytes = total

    def _unlink(self, path: Path) -> bool:
        """Delete a file that no job uses; says whether it did."""
        with self._pinning:
            if path.name in self._pins:
                return False
            path.unlink(missing_ok=True)
            return True


def hex_of(digest: str) -> str:
    """The name a digest has on disk. Raises `NotFetched` for what is no digest."""
    match = _DIGEST.match(digest)
    if match is None:
        raise NotFetched(f"{digest[:80]!r} is no digest")
    return match.group(1)


def look(path: Path) -> Seen:
    """What changes when a file does."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ino
