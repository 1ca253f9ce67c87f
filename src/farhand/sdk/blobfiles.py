"""Content-addressed files in one directory: ``<dir>/<hex>``, complete or not there at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Iterable, Iterator, Optional, Tuple, Union

from .fronts import Front
from .references import DIGEST_PREFIX

_CHUNK_BYTES = 1024 * 1024

Piece = Union[bytes, memoryview]
"""Bytes, wherever they lie."""


def write_blob(
    directory: Path, chunks: Iterable[Piece], synced: bool = True, front: Optional[Front] = None
) -> Tuple[str, int]:
    """Write a blob under its digest; returns (digest, size). ``front`` comes first, and is hashed already.

    The bytes are written under a temporary name and renamed, so any number of writers of the same
    content, and one that is killed midway, leave either nothing or the whole file. With ``synced`` the same
    holds for a machine that goes down.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = directory / f".new-{os.getpid()}-{os.urandom(8).hex()}"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    hasher, size = new_sha256() if front is None else front.sha256.copy(), 0
    try:
        with os.fdopen(fd, "wb") as file:
            if front is not None:
                size = file.write(front.content)
            for chunk in chunks:
                hasher.update(chunk)
                size += len(chunk)
                file.write(chunk)
            if synced:
                file.flush()
                os.fsync(file.fileno())
        os.rename(temporary, directory / hasher.hexdigest())
    except BaseException:  # whatever ended the copy, no partial file may stay
        os.unlink(temporary)
        raise
    return DIGEST_PREFIX + hasher.hexdigest(), size


def new_sha256() -> Any:
    """A new SHA-256: OpenSSL's, loaded for the first, since small values have no use for it."""
    try:
        from _hashlib import openssl_sha256  # noqa: PLC0415
    except ImportError:
        from hashlib import sha256  # noqa: PLC0415 - an interpreter that has another one

        return sha256()
    return openssl_sha256()


def read_chunks(path: Path) -> Iterator[bytes]:
    """The content of a file, piece by piece."""
    with open(path, "rb") as file:
        while True:
            chunk = file.read(_CHUNK_BYTES)
            if not chunk:
                return
            yield chunk
