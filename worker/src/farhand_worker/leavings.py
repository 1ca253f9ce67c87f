"""What jobs had saved, when nobody needs it here any more."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from pathlib import Path
from typing import Any, Callable, Coroutine, List

_MANY = 4
_FILES_MAX = 4
_BYTES_MAX = 4 * 1024 * 1024


class Leavings:
    """Deletes them: a little at once, much by a thread. ``background`` runs a coroutine beside all else."""

    def __init__(self, root: Path, background: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        self._root = root
        self._background = background
        self._added: List[str] = []

    def add(self, directory: str) -> None:
        """Have a job's directory below the root deleted at the next `clear`, if it is there."""
        self._added.append(directory)

    def clear(self) -> None:
        """Delete what was added. Few jobs save anything: where they are many, one look finds those."""
        added, self._added = self._added, []
        if len(added) >= _MANY:
            with contextlib.suppress(OSError):  # each is looked for, then
                there = set(os.listdir(self._root))
                added = [directory for directory in added if os.path.basename(directory) in there]
        for directory in added:
            self.remove(directory)

    def remove(self, directory: str) -> None:
        """Delete a job's directory, which may not be there; heartbeats do not wait for large files."""
        try:
            found = list(os.scandir(directory))
            if len(found) > _FILES_MAX or sum(entry.stat().st_size for entry in found) > _BYTES_MAX:
                raise IsADirectoryError(directory)
            for entry in found:
                os.unlink(entry.path)
            os.rmdir(directory)
        except FileNotFoundError:
            return
        except OSError:  # it is large, or holds more than plain files
            self._background(asyncio.to_thread(shutil.rmtree, directory, True))
