"""Where a worker's runtimes lie, and which of them is whole. Loaded before the agent."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path
from typing import List, Optional, Tuple

from .blobs import hex_of

ROUTE = "/api/v1/workers/runtime"
"""Where the server has the one that it names."""


class Runtimes:
    """The directory of them, by digest, for one interpreter of engines."""

    def __init__(self, directory: Path, python: str) -> None:
        self._directory = directory
        self._python = python
        self._mark = f".compiled-{hashlib.sha256(python.encode()).hexdigest()[:12]}"

    def home(self, digest: str) -> Path:
        """The directory of one, there or not. Raises `NotFetched` for what is no digest."""
        return self._directory / hex_of(digest)

    def archive(self, digest: str) -> Path:
        """The file that it is unpacked from."""
        return self.home(digest).with_suffix(".zip")

    def mark(self, home: Path) -> Path:
        """The file that says of one that it is whole, and compiled for our interpreter."""
        return home / self._mark

    def came_compiled(self, home: Path) -> bool:
        """Whether the server's Python had compiled all of it as ours would."""
        return os.path.realpath(self._python) == os.path.realpath(sys.executable) and is_compiled(home)

    def last(self) -> Optional[str]:
        """The digest of the one that was in use last, if it is still here and ready."""
        kept = newest_first(self._directory)
        return next((f"sha256:{home.name}" for home in kept if self.mark(home).exists()), None)


def is_compiled(home: Path) -> bool:
    """Whether each module of a tree has its compiled form beside it, made by the Python that runs this."""
    for source in home.rglob("*.py"):
        try:
            with open(cache_from_source(str(source), optimization=""), "rb") as compiled:
                if compiled.read(len(MAGIC_NUMBER)) != MAGIC_NUMBER:
                    return False
        except OSError:
            return False
    return True


def newest_first(directory: Path) -> List[Path]:
    """What lies in a directory, by the time it was last used."""
    found: List[Tuple[float, Path]] = []
    for path in directory.iterdir():
        with contextlib.suppress(FileNotFoundError):  # what is just arriving changes its name
            found.append((path.stat().st_mtime, path))
    return [path for _, path in sorted(found, reverse=True)]
