"""Backups: one tar file with the store, the files that runs saved, and the keys of the home.

The first member says what it is, the last that nothing is missing: a file that was cut off has no end. The
store is copied first, so every file that it names is there when files are read; the pruner deletes none
meanwhile.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO

from .. import __version__
from ..errors import FarhandError, StoreFailed, Usage
from ..store import Store
from ..store.backup import adopt, snapshot
from .pruner import Pruner

STORE = "farhand.db"
HEAD, END = "farhand-backup.json", "farhand-backup.end"
KEYS = ("admin-token", "local-key.pem", "secret-key", "session-key", "token-key.pem")
FORMAT = 1
_CHUNK_BYTES = 1024 * 1024


class Backup:
    """Takes backups of a running server's home."""

    def __init__(self, store: Store, home: Path, pruner: Pruner) -> None:
        self._store = store
        self._home = home
        self._pruner = pruner

    def check(self) -> None:
        """Raises `Usage` when the store is a PostgreSQL database."""
        if self._store.database.dialect != "sqlite":
            raise Usage(NOT_OURS)

    @asynccontextmanager
    async def taken(self) -> AsyncGenerator[Iterator[bytes]]:
        """The bytes of a backup, to be read (in a thread) while this is open. Raises as `check` does."""
        self.check()
        async with self._pruner.keeping_blobs():
            directory = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix=".backup-", dir=self._home))
            try:
                copy = directory / STORE
                await asyncio.to_thread(snapshot, self._home / STORE, copy)
                yield archive(self._home, copy)
            finally:
                await asyncio.to_thread(shutil.rmtree, directory, True)


NOT_OURS = "the store is a PostgreSQL database: back it up with pg_dump, and copy its home too"


@contextmanager
def taken_offline(home: Path) -> Generator[Iterator[bytes]]:
    """The bytes of a backup of a home that no server runs on; the caller owns it."""
    with tempfile.TemporaryDirectory(prefix=".backup-", dir=home) as directory:
        copy = Path(directory) / STORE
        snapshot(home / STORE, copy)
        yield archive(home, copy)


def archive(home: Path, copy: Path) -> Iterator[bytes]:
    """A tar file, piece by piece: ``copy`` as the store, then keys and blobs."""
    head = {"format": FORMAT, "farhand": __version__, "made_at": time.time()}
    yield from _small(HEAD, json.dumps(head).encode())
    yield from _file(STORE, copy)
    for name in KEYS:
        if (home / name).exists():
            yield from _file(name, home / name)
    for path in sorted((home / "blobs").glob("[0-9a-f][0-9a-f]/[0-9a-f]*")):
        yield from _file(f"blobs/{path.parent.name}/{path.name}", path)
    yield from _small(END, b"")
    yield bytes(2 * tarfile.BLOCKSIZE)


def restore(file: Path, home: Path) -> str:
    """Make ``home`` from a backup; returns the new incarnation. Nothing is there unless all of it is.

    Raises `Usage` when the home is not empty or the file is no backup, `StoreFailed` when it is damaged.
    """
    if home.exists() and (not home.is_dir() or any(home.iterdir())):
        raise Usage(f"{home} is not empty; restore into a new directory with --home")
    home.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{home.name}.", dir=home.parent))
    try:
        _unpack(file, beside)
        incarnation = adopt(beside / STORE)
        if home.exists():
            home.rmdir()
        beside.rename(home)
    except BaseException:  # no half a home may stay behind
        shutil.rmtree(beside, ignore_errors=True)
        raise
    return incarnation


def _unpack(file: Path, target: Path) -> None:
    names: list[str] = []
    try:
        with tarfile.open(file, "r|") as tar:
            for member in tar:
                names.append(member.name)
                if names[0] != HEAD:
                    break
                content = tar.extractfile(member)
                if content is None or not _is_ours(member.name):
                    raise StoreFailed(f"{file} holds {member.name!r}, which no backup has; it is damaged")
                if member.name not in (HEAD, END):
                    _write(target / member.name, content)
    except (tarfile.TarError, OSError, EOFError) as error:
        if names[:1] == [HEAD]:
            raise StoreFailed(f"{file} is damaged: {error}") from error
        raise Usage(f"{file} is no backup of farhand: {error}") from error
    if names[:1] != [HEAD]:
        raise Usage(f"{file} is no backup of farhand")
    if names[-1] != END or STORE not in names:
        raise StoreFailed(f"{file} is not whole: its end is missing; take the backup again")


def _is_ours(name: str) -> bool:
    parts = name.split("/")
    if parts[0] == "blobs" and len(parts) == 3:
        return len(parts[2]) == 64 and parts[2][:2] == parts[1] and set(parts[2]) <= set("0123456789abcdef")
    return name in (STORE, HEAD, END, *KEYS)


def _write(path: Path, content: IO[bytes]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with open(path, "xb", opener=_private) as file:
        while chunk := content.read(_CHUNK_BYTES):
            digest.update(chunk)
            file.write(chunk)
    if path.parent.parent.name == "blobs" and digest.hexdigest() != path.name:
        raise StoreFailed(f"the blob {path.name} in this backup is damaged; restore from another one")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _small(name: str, content: bytes) -> Iterator[bytes]:
    yield _header(name, len(content))
    yield content + _padding(len(content))


def _file(name: str, path: Path) -> Iterator[bytes]:
    """A file that has its full length already; one that is gone meanwhile was named by no record."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        size = path.stat().st_size
        yield _header(name, size)
        left = size
        while left:
            chunk = file.read(min(left, _CHUNK_BYTES))
            if not chunk:
                raise FarhandError(f"{path} became shorter while it was backed up")
            left -= len(chunk)
            yield chunk
        yield _padding(size)


def _header(name: str, size: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = size, 0o600, int(time.time())
    return member.tobuf(tarfile.PAX_FORMAT)


def _padding(size: int) -> bytes:
    return bytes(-size % tarfile.BLOCKSIZE)
