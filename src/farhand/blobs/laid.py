"""Blobs that a worker which sees this directory has laid beside their place, to be taken as they are.

A laid file is ``.HEX.TOKEN.laid`` in the directory of its digest; both names are checked here, so that no
other file can be meant. Nothing said of it is believed: it has to be a plain file of this user with no
other name, is made private, read, and taken for the blob only if it is what its digest says. Whatever else it
is, it is deleted. One that is never asked for goes with the other unfinished files.

Reading a large file may take longer than anybody should wait for an answer, so it goes on between two
questions.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from ..errors import Conflict, DigestMismatch, NotFound, Usage
from .landing import PIECE_BYTES, check, settle

ANSWER_S = 10.0
"""Whoever asks is told within this time how far it is."""

_THREADS = 2
"""Large files take these for long, and nobody else waits for them."""

_TOKEN = re.compile(r"[0-9a-f]{32}")


class Own(NamedTuple):
    """What is known of a file because the server's own worker has laid it: it is the server's user and child.

    It may lay a file by a second name, which goes with its job. ``hashed``: its engine has hashed what it
    wrote, a moment ago; what is read of it now is what was written then.
    """

    names_max: int = 1
    hashed: bool = False


FOREIGN = Own()
"""Any other worker's."""


class Laid:
    """The laid files of one directory. ``place`` tells where a digest's blob belongs."""

    def __init__(self, place: Callable[[str], Path]) -> None:
        self._place = place
        self._taken: dict[Path, asyncio.Future[None]] = {}
        self._threads = ThreadPoolExecutor(_THREADS, "laid")

    async def settle(self, digest: str, token: str, size: int, own: Own = FOREIGN) -> bool:
        """Make a laid file the blob, on disk when this is true; false: ask again, it is still being read.

        Raises `Usage` for what is no token, `NotFound` when no such file is seen here, `Conflict` when it is
        not one to be taken, and `DigestMismatch` when it is of another size or content.
        """
        place = self._place(digest)
        if _TOKEN.fullmatch(token) is None:
            raise Usage("the token of a laid file is 32 hexadecimal digits")
        path = place.with_name(f".{place.name}.{token}.laid")
        task = self._taken.get(path)
        if task is None:
            loop = asyncio.get_running_loop()
            task = loop.run_in_executor(self._threads, _take, path, place, digest, size, own)
            self._taken[path] = task
            task.add_done_callback(lambda done: self._over(path, done))
        done, _ = await asyncio.wait({task}, timeout=ANSWER_S)
        if not done:
            return False
        task.result()
        return True

    def _over(self, path: Path, done: asyncio.Future[None]) -> None:
        del self._taken[path]
        if not done.cancelled():
            done.exception()  # whoever asked has it, or has gone


def _take(path: Path, place: Path, digest: str, size: int, own: Own) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NotFound(f"no file was laid here for {digest}; send it instead") from None
    except OSError as error:
        _remove(path)
        raise Conflict(
            f"the file laid for {digest} cannot be read: {error.strerror}; send it instead"
        ) from None
    try:
        _refuse_foreign(os.fstat(fd), digest, size, own.names_max)
        os.fchmod(fd, 0o600)
        if not own.hashed:
            check(_hash_of(fd, size), digest)
        settle(fd, path, place)
    finally:
        os.close(fd)
        _remove(path)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # it is gone, being the blob now, or is not even a file
        path.unlink()


def _refuse_foreign(status: os.stat_result, digest: str, size: int, names_max: int) -> None:
    """Only what can be kept like a file of our own: another's could be changed by them later."""
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_nlink > names_max:
        raise Conflict(
            f"the file laid for {digest} is not a plain file of the server's own user; send it instead"
        )
    if status.st_size != size:
        raise DigestMismatch(f"the file laid for {digest} has {status.st_size} bytes, not {size}")


def _hash_of(fd: int, size: int) -> str:
    """The hash of what is read, in hexadecimal; of no more than was promised."""
    found = hashlib.sha256()
    buffer = memoryview(bytearray(min(PIECE_BYTES, size + 1)))
    left = size + 1  # a file that grows meanwhile is another one
    while left > 0 and (count := os.readv(fd, [buffer[:left]])):
        found.update(buffer[:count])
        left -= count
    return found.hexdigest()
