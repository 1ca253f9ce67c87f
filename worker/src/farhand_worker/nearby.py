"""The server's own directory of blobs, on a machine that sees it: files are copied from there, not sent.

The server says where its blobs lie, and a nonce that it has written there when it started. Whoever reads the
nonce at that place sees that very directory; another directory of the same path has none, or an old one. Only
a place is looked at that the worker was told it shares with the server.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Mapping, Optional, Sequence

from .blobs import hex_of
from .transfer import copy_hashed

PROBE = "probe"
_NONCE_BYTES_MAX = 256
_log = logging.getLogger("farhand.worker")


class Nearby:
    """What of the server's blobs is seen from here. ``shared`` are the places to believe in; None: any."""

    def __init__(self, shared: Optional[Sequence[str]] = ()) -> None:
        self._shared = None if shared is None else [Path(place) for place in shared]
        self._directory: Optional[Path] = None

    @property
    def seen(self) -> bool:
        """Whether the directory is there, proved for the server of now."""
        return self._directory is not None

    def prove(self, told: Optional[Mapping[str, str]]) -> None:
        """Look for the nonce where the server says its blobs lie. May wait for a network file system."""
        before, self._directory = self._directory, None
        if told is not None and self._is_there(Path(told["directory"]), told["nonce"]):
            self._directory = Path(told["directory"])
            if self._directory != before:
                _log.info("files come straight from the server's directory %s", self._directory)

    def copy(self, digest: str, target: Path) -> bool:
        """Bring a blob to ``target``, verified; false where it is not there as it should be.

        Raises OSError when ``target`` cannot be written.
        """
        if self._directory is None:
            return False
        name = hex_of(digest)
        partial = target.with_name(f".copying-{target.name}")
        try:
            source = (self._directory / name[:2] / name).open("rb")
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
