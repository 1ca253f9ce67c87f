"""A worker's own copy of the project: what of a flow's code it has, and the tree that engines run from.

Engines never run from the checkout itself, which may change under them. What a manifest names is copied into
the cache, each file compared as it is copied; so a checkout in the middle of a pull gives no tree at all.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Iterable, List, Mapping, Optional, Tuple

from .gitstate import git_state
from .manifest import digest_file

Seen = Tuple[Tuple[int, int, int], ...]


class Differs(Exception):
    """The checkout does not have this code; ``files`` are those that differ."""

    def __init__(self, files: List[str]) -> None:
        super().__init__(f"this worker's checkout differs in {', '.join(files[:5])}")
        self.files = files


class Checkout:
    """The directory a worker was started in. Reading it may take a while: not for the event loop."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def git(self) -> str:
        """Branch and commit."""
        return git_state(self.root)

    def differing(self, manifest: Mapping[str, str]) -> List[str]:
        """The files of a manifest that are missing here or others."""
        return [name for name, digest in manifest.items() if self._digest(name) != digest]

    def look(self, names: Iterable[str]) -> Seen:
        """Time, size and inode of the files: as long as these stay, so does what is in them."""
        return tuple(map(self._stat, sorted(names)))

    def copy(self, manifest: Mapping[str, str], home: Path) -> None:
        """Make ``home`` a read-only tree of a manifest's files. Raises `Differs`, and leaves nothing then."""
        differing: List[str] = []
        with tempfile.TemporaryDirectory(dir=str(home.parent), prefix=".copying-") as temporary:
            tree = Path(temporary) / "tree"
            tree.mkdir()
            for name, digest in manifest.items():
                content = self._read(name)
                if content is None or digest_file(content) != digest:
                    differing.append(name)
                    continue
                target = tree / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
            if differing:
                raise Differs(differing)
            _make_read_only(tree)
            os.rename(tree, home)
        os.chmod(home, 0o555)

    def _read(self, name: str) -> Optional[bytes]:
        try:
            return (self.root / name).read_bytes()
        except OSError:
            return None

    def _digest(self, name: str) -> Optional[str]:
        content = self._read(name)
        return None if content is None else digest_file(content)

    def _stat(self, name: str) -> Tuple[int, int, int]:
        try:
            status = os.stat(self.root / name)
        except OSError:
            return (0, 0, 0)
        return (status.st_mtime_ns, status.st_size, status.st_ino)


def _make_read_only(tree: Path) -> None:
    for directory, _, files in os.walk(tree):
        for name in files:
            os.chmod(os.path.join(directory, name), 0o444)
        if directory != str(tree):
            os.chmod(directory, 0o555)
