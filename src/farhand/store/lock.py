"""One process owns a home: SQLite is only safe here with a single writer."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from ..errors import StoreLocked

LOCK_NAME = "store.lock"
"""The file in the home that is locked."""


class HomeLock:
    """An flock on ``<home>/store.lock``, which holds the owner's pid. The kernel frees it at any death."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.read(self._fd, 32).decode("ascii", "replace").strip()
            os.close(self._fd)
            raise StoreLocked(
                f"process {owner or '(unknown)'} owns {path.parent};"
                " `farhand stop` ends a server, or choose another home with --home",
                pid=int(owner) if owner.isdecimal() else None,
            ) from error
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Give the home up."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
