"""Empty files made while nothing is to do, each to be given its name when it is needed.

An attempt is on disk before anything of it begins, and making a file takes a disk three times as long as
renaming one; half a millisecond where ext4 has no journal, since it passes over all that was removed in the
last minutes. Each is used once: what wrote to it may still hold it open.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import List, Optional, Tuple, Union

KEPT = 16
"""So many are there after a `fill`: enough for short jobs that come one after another until the next."""


class Spares:
    """Files below ``root``. Whoever takes some has them filled up again."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._count = 0
        self._free: List[Tuple[str, int]] = []

    def take(self, path: Union[str, Path]) -> Optional[int]:
        """Give one the name ``path``; it is open to be read. None where none is there or it has gone."""
        if not self._free:
            return None
        name, fd = self._free.pop()
        try:
            os.rename(name, path)
        except OSError:
            os.close(fd)
            return None
        return fd

    def fill(self) -> None:
        """Make as many as there are to be."""
        with suppress(OSError):  # a full disk, say: whoever needs one makes it, and says so
            while len(self._free) < KEPT:
                self._make()

    def close(self) -> None:
        """Keep none any more."""
        for _, fd in self._free:
            os.close(fd)
        self._free.clear()

    def _make(self) -> None:
        if not self._count:
            self._root.mkdir(exist_ok=True)
        self._count += 1
        name = f"{self._root}/{self._count}"
        self._free.append((name, os.open(name, os.O_CREAT | os.O_RDONLY | os.O_CLOEXEC, 0o600)))
