"""The working directories of jobs that have no checkout: an empty one each.

Removing a directory is what costs most between two short jobs, many times what the rest does. So one that a
job leaves as it was is kept for the next.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Dict, List, NamedTuple, Tuple

KEPT_MAX = 8
"""Empty directories that are kept; every other is removed."""

_SURE_S, _SURE_SOON_S = 3.0, 0.1
"""Longer than the least difference that any file system makes between two times of change, and than that of
one whose times have parts of a second: the tick of a clock."""

_SECOND_NS = 10**9

_Stamp = Tuple[int, int, int, int]


class _Made(NamedTuple):
    """A directory as it was made; and its times of change when it was seen to be empty, if they tell."""

    stamp: _Stamp
    empty: Tuple[int, int] = (0, 0)


class Scratch:
    """Directories below ``root``, which is emptied for each agent."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._count = 0
        self._free: List[Path] = []
        self._made: Dict[Path, _Made] = {}

    def take(self) -> Path:
        """An empty directory. Raises OSError."""
        while self._free:
            path = self._free.pop()
            if self._is_as_made(path):
                return path
            self.remove(path)
        self._count += 1
        path = self.root / str(self._count)
        path.mkdir(parents=True)  # what clears temporary files away may have taken the root
        self._made[path] = _Made(_stamp(os.lstat(path)))
        return path

    def keep(self, path: Path) -> bool:
        """Give back a directory that nobody works in any more; false when it has to be removed."""
        if len(self._free) >= KEPT_MAX or not self._is_as_made(path):
            return False
        self._free.append(path)
        return True

    def remove(self, path: Path) -> None:
        """Remove a directory with all that is in it, which may take long."""
        self._made.pop(path, None)
        shutil.rmtree(path, ignore_errors=True)

    def _is_as_made(self, path: Path) -> bool:
        made = self._made.get(path)
        try:
            status = os.lstat(path)
            return made is not None and _stamp(status) == made.stamp and self._is_empty(path, made, status)
        except OSError:
            return False

    def _is_empty(self, path: Path, made: _Made, status: os.stat_result) -> bool:
        """Whatever comes into a directory, or goes, changes its times: with those it had when it was empty it
        is. They tell once they are old: two changes within one tick of a clock leave the same time."""
        changed = (status.st_mtime_ns, status.st_ctime_ns)
        if changed == made.empty:
            return True
        if os.listdir(path):
            return False
        sure_s = _SURE_SOON_S if all(at % _SECOND_NS for at in changed) else _SURE_S
        if max(changed) / _SECOND_NS < time.time() - sure_s:
            self._made[path] = _Made(made.stamp, changed)
        return True


def _stamp(status: os.stat_result) -> _Stamp:
    """What of a directory a job could change, besides what is in it."""
    return status.st_ino, status.st_mode, status.st_uid, status.st_gid
