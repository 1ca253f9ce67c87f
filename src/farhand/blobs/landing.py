"""A blob on its way in: written beside its place, checked, synced, renamed."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import AsyncIterable, AsyncIterator
from pathlib import Path

from ..errors import DigestMismatch

_PIECE_BYTES = 1024 * 1024


async def gathered(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in large pieces, since each is written by a thread; also what came before an error."""
    held: list[bytes] = []
    size = 0
    try:
        async for chunk in chunks:
            held.append(chunk)
            size += len(chunk)
            if size >= _PIECE_BYTES:
                yield b"".join(held)
                held, size = [], 0
    except Exception:  # a connection that broke: what it has brought is to be kept
        if held:
            yield b"".join(held)
        raise
    if held:
        yield b"".join(held)


class Landing:
    """A blob on its way in; gone without trace unless it settles."""

    def __init__(self, place: Path) -> None:
        self._place = place
        place.parent.mkdir(mode=0o700, exist_ok=True)
        self._path = place.with_name(f".{place.name}.{secrets.token_hex(6)}")
        self._file = self._path.open("xb")
        self._hash = hashlib.sha256()
        self.size = 0

    def __enter__(self) -> Landing:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._file.close()  # on a full disk even this raises
        finally:
            self._path.unlink(missing_ok=True)

    def write(self, chunk: bytes) -> None:
        self._file.write(chunk)
        self._hash.update(chunk)
        self.size += len(chunk)

    def settle(self, digest: str) -> None:
        check(self._hash.hexdigest(), digest)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._path.rename(self._place)


def check(found: str, digest: str) -> None:
    """Raises `DigestMismatch` unless ``found``, in hexadecimal, is the digest."""
    if f"sha256:{found}" != digest:
        raise DigestMismatch(f"the bytes that arrived are sha256:{found}, not {digest}; send them again")
