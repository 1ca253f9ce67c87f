"""The working directories of jobs that have no checkout: an empty one each.

Removing a directory is what costs most between two short jobs, many times what the rest does. So one that a
job leaves as it was is kept for the next.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Dict, List, Tuple

KEPT_MAX = 8
"""Empty directories that are kept; every other is removed."""

_Stamp = Tuple[int, int, int, int]


class Scratch:
    """Directories below ``root``, which is emptied for each agent."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._count = 0
        self._free: List[Path] = []
        self._stamps: Dict[Path, _Stamp] = {}

    def take(self) -> Path:
        """An empty directory. Raises OSError."""
        while self._free:
            path = self._free.pop()
            if self._is_as_made(path):
                return path
            self.remove(path)
        self._count += 1
        path = self.root / str(self._count)
        path.mkdir()
        self._stamps[path] = _stamp(path)
        return path

    def keep(self, path: Path) -> bool:
        """Give back a directory that nobody works in any more; false when it has to be removed."""
        if len(self._free) >= KEPT_MAX or not self._is_as_made(path):
            return False
        self._free.append(path)
        return True

    def remove(self, path: Path) -> None:
        """Remove a directory with all that is in it, which may take long."""
        self._stamps.pop(path, None)
        shutil.rmtree(path, ignore_errors=True)

    def _is_as_made(self, path: Path) -> bool:
        try:
            return _stamp(path) == self._stamps.get(path) and not os.listdir(path)
        except OSError:
            return False


def _stamp(path: Path) -> _Stamp:
    """What of a directory a job could change, besides what is in it."""
    status = os.lstat(path)
    return status.st_ino, status.st_mode, status.st_uid, status.st_gid
