"""Files with nothing in them that are there before they are needed, each to be given its name then.

An attempt is on disk before anything of it begins, and making a file takes a disk twice as long as giving one
another name; a millisecond where ext4 has no journal, since it passes over all that was removed in the last
minutes. So a file that is done with is emptied and used again, if nothing that wrote to it can hold it open.

"Empty" is an empty line. What is cut to no byte at all is taken by ext4 for a file that is being replaced: it
is written to the disk as soon as it is closed the next time, and its blocks are given back at the next cut,
which takes ten times as long and keeps the disk busy beside the commits that wait for it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import List, NamedTuple, Optional, Union

HEAD = b"\n"
"""What is in them."""

KEPT = 32
"""No more are there: enough for short jobs that come one after another until they are seen to."""

FEWEST = 8
"""With fewer, files are made."""


class Spare(NamedTuple):
    """A file with nothing but `HEAD` in it, open to be read and written, and the name it has meanwhile."""

    name: str
    fd: int


class Spares:
    """Files below ``root``. Whoever takes some gives them back, or has them filled up again."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._count = 0
        self._free: List[Spare] = []

    def take(self, path: Union[str, Path]) -> Optional[int]:
        """Give one of them the name ``path``; it, open as it is kept. None where that is not to be had."""
        if not self._free:
            return None
        spare = self._free.pop()
        try:
            os.rename(spare.name, path)
        except OSError:  # it has gone, say; whoever makes one then says what is wrong
            os.close(spare.fd)
            return None
        return spare.fd

    def give_back(self, path: Union[str, Path], fd: int) -> bool:
        """Have the file ``path``, open as ``fd`` to be read and written, for another use, empty; or not,
        where there are enough.

        Nobody writes to it any more.
        """
        if len(self._free) >= KEPT:
            return False
        try:
            name = self._next_name()
            os.rename(path, name)
            _empty(fd)
        except OSError:  # it has gone already, or is no use; an agent that starts empties the directory
            return False
        self._free.append(Spare(name, fd))
        return True

    def fill(self) -> None:
        """See that there are some."""
        if len(self._free) < FEWEST:
            with suppress(OSError):  # a full disk, say: whoever needs one makes it, and says so
                while len(self._free) < KEPT:
                    self._make()

    def close(self) -> None:
        """Keep none any more."""
        for spare in self._free:
            os.close(spare.fd)
        self._free.clear()

    def _next_name(self) -> str:
        if not self._count:
            self._root.mkdir(exist_ok=True)
        self._count += 1
        return f"{self._root}/{self._count}"

    def _make(self) -> None:
        name = self._next_name()
        fd = os.open(name, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            _empty(fd)
        except OSError:
            os.close(fd)
            raise
        self._free.append(Spare(name, fd))


def _empty(fd: int) -> None:
    os.pwrite(fd, HEAD, 0)
    os.ftruncate(fd, len(HEAD))
