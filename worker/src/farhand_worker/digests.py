"""Digests of files, taken on the way: each byte is read once."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Callable

CHUNK_BYTES = 256 * 1024
"""What is read at a time: it stays in the processor's cache until it is hashed and written."""


def file_digest(path: Path) -> str:
    """The digest of a file's content."""
    found = hashlib.sha256()
    feed(found, path)
    return f"sha256:{found.hexdigest()}"


def copy_hashed(source: Any, write: Callable[[memoryview], int], found: Any = None) -> str:
    """Write what ``source`` holds, in one pass; the digest of what was written, after what was fed before.

    One buffer takes every piece: a new one each time would cost as much as hashing a part of it.
    """
    found = hashlib.sha256() if found is None else found
    buffer = memoryview(bytearray(CHUNK_BYTES))
    while True:
        size = source.readinto(buffer)
        if not size:
            return f"sha256:{found.hexdigest()}"
        piece = buffer[:size]
        found.update(piece)
        while piece:
            piece = piece[write(piece) :]


def feed(found: Any, path: Path) -> None:
    """Hash a file's content."""
    buffer = memoryview(bytearray(CHUNK_BYTES))
    with path.open("rb", buffering=0) as file:
        while True:
            size = file.readinto(buffer)
            if not size:
                return
            found.update(buffer[:size])
