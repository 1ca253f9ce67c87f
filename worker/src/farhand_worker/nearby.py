"""The server's own directory of blobs, on a machine that sees it: files are copied there and back, not sent.

The server says where its blobs lie, and a nonce that it has written there when it started. Whoever reads the
nonce at that place sees that very directory; another directory of the same path has none, or an old one. Only
a place is looked at that the worker was told it shares with the server.

A file that is brought there is laid beside its place, under a name of its own, and becomes the blob when the
server has read it. Where that cannot be done, it is sent.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
from collections import OrderedDict
from contextlib import contextmanager
from pathlib import Path
from typing import Generator, Mapping, NamedTuple, Optional, Sequence

from .blobs import Seen, hex_of, look
from .digests import copy_hashed, file_digest

PROBE = "probe"
_NONCE_BYTES_MAX = 256
_CHUNK_BYTES = 8 * 1024 * 1024
_FOUND_MAX = 1024
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_log = logging.getLogger("farhand.worker")


class LaidFile(NamedTuple):
    """A file beside its place in the server's directory, and what the server is told to find it by."""

    token: str
    size: int


class Nearby:
    """What of the server's blobs is seen from here. ``shared`` are the places to believe in; None: any."""

    def __init__(self, shared: Optional[Sequence[str]] = ()) -> None:
        self._shared = None if shared is None else [Path(place) for place in shared]
        self._directory: Optional[Path] = None
        self._nonce = ""
        self._said = ""
        self._found: OrderedDict[str, Seen] = OrderedDict()
        self.takes = False
        self.answers = False

    @property
    def seen(self) -> bool:
        """Whether the directory is there, proved for the server of now."""
        return self._directory is not None

    @property
    def beside(self) -> bool:
        """Whether the directory is there, and this the server's own worker: of its user, on its machine."""
        return self._shared is None and self.seen

    def prove(self, told: Optional[Mapping[str, str]]) -> None:
        """Look for the nonce where the server says its blobs lie. May wait for a network file system."""
        before, self._directory = self._directory, None
        if told is None or not self._is_there(Path(told["directory"]), told["nonce"]):
            self.takes = False
            return
        self._directory = Path(told["directory"])
        if self._nonce != told["nonce"]:  # what one server refused, the next may take
            self._nonce, self.takes, self.answers = told["nonce"], "laid" in told, "asked" in told
        if self._directory != before:
            _log.info("files come straight from the server's directory %s", self._directory)

    def copy(self, digest: str, target: Path) -> bool:
        """Bring a blob to ``target``, verified; false where it is not there as it should be.

        Raises OSError when ``target`` cannot be written.
        """
        place = self._place(digest)
        if place is None:
            return False
        partial = target.with_name(f".copying-{target.name}")
        try:
            source = place.open("rb", buffering=0)
        except OSError:
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with source, partial.open("wb", buffering=0) as copied:
                if copy_hashed(source, copied.write) != digest:
                    return False
            os.replace(partial, target)
        finally:
            partial.unlink(missing_ok=True)
        return True

    def find(self, digest: str) -> Optional[Path]:
        """The server's own file of a blob, for who only reads it; None where it is not as it should be.

        It is read when it is seen for the first time, or has changed since.
        """
        place = self._place(digest)
        if place is None:
            return None
        try:
            seen = look(place)
            if self._found.get(digest) != seen and file_digest(place) != digest:
                return None
        except OSError:
            return None
        self.told(digest, seen)
        return place

    def told(self, digest: str, seen: Seen) -> None:
        """The file of a blob was verified when it was like this."""
        self._found[digest] = seen
        while len(self._found) > _FOUND_MAX:
            self._found.popitem(last=False)

    def known(self, digest: str) -> Optional[Path]:
        """The server's own file of a blob, if it has not changed since it was verified."""
        place, seen = self._place(digest), self._found.get(digest)
        try:
            return place if place is not None and seen is not None and look(place) == seen else None
        except OSError:
            return None

    def _place(self, digest: str) -> Optional[Path]:
        """Where the server has a blob."""
        directory, name = self._directory, hex_of(digest)
        return None if directory is None else directory / name[:2] / name

    @contextmanager
    def linked(self, digest: str, source: Path) -> Generator[Optional[LaidFile], None, None]:
        """Lay a file by a second name beside its blob's place, for as long as this lasts.

        None where it cannot be: on another file system it has to be copied.
        """
        place, token = self._place(digest), secrets.token_hex(16)
        if place is None:
            yield None
            return
        path = _beside(place, token)
        try:
            os.link(source, path)
            size = path.stat().st_size
        except OSError:
            yield None
            return
        try:
            yield LaidFile(token, size)
        finally:
            _remove(path)

    @contextmanager
    def laid(self, digest: str, source: Path) -> Generator[Optional[LaidFile], None, None]:
        """Lay a file beside its blob's place, on disk, for as long as this lasts; None where it cannot be.

        Raises OSError when ``source`` cannot be read.
        """
        place, token = self._place(digest), secrets.token_hex(16)
        with source.open("rb", buffering=0) as file:
            if place is None or not self.takes:
                yield None
                return
            path = _beside(place, token)
            try:
                yield self._lay(file.fileno(), path, token)
            finally:
                _remove(path)

    def refused(self, why: object) -> None:
        """Files cannot be laid there: they are sent from now on, until another server is met."""
        self.takes = False
        self._say(why)

    def _lay(self, source: int, path: Path, token: str) -> Optional[LaidFile]:
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                size = _copy(source, fd)
                if self._shared is not None:  # what has not left another machine the server cannot sync
                    os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            if error.errno in _FULL:
                self._say(error.strerror)
            else:
                self.refused(error.strerror)
            return None
        return LaidFile(token, size)

    def _say(self, why: object) -> None:
        if self._said != str(why):
            self._said = str(why)
            _log.warning("files are sent, not laid in %s: %s", self._directory, why)

    def _is_there(self, directory: Path, nonce: str) -> bool:
        if self._shared is not None and not any(
            place == directory or place in directory.parents for place in self._shared
        ):
            return False
        try:
            with (directory / PROBE).open("rb") as file:
                return file.read(_NONCE_BYTES_MAX) == nonce.encode()
        except OSError:
            return False


def _copy(source: int, target: int) -> int:
    """Copy a file, within the kernel where it can do that; how many bytes those were."""
    size = 0
    while True:
        more = _copied(source, target)
        if not more:
            return size
        size += more


def _copied(source: int, target: int) -> int:
    """Copy the next piece. The positions of both files are where the last one ended."""
    try:
        return os.copy_file_range(source, target, _CHUNK_BYTES)  # type: ignore[attr-defined,unused-ignore]
    except (AttributeError, OSError) as error:  # not on macOS; nor between some file systems
        if isinstance(error, OSError) and error.errno in _FULL:
            raise
    piece = memoryview(os.read(source, _CHUNK_BYTES))
    size = len(piece)
    while piece:
        piece = piece[os.write(target, piece) :]
    return size


def _beside(place: Path, token: str) -> Path:
    """Where a file is laid for the server to take, next to its blob's place."""
    return place.with_name(f".{place.name}.{token}.laid")


def _remove(path: Path) -> None:
    """The server has it under its own name, or will have it otherwise."""
    try:
        path.unlink()
    except OSError:
        return  # it is gone, or goes with the server's other unfinished files
