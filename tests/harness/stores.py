"""A SQLite store as the migrations leave it, to copy: to migrate a new one takes five times as long."""

from __future__ import annotations

import tempfile
from pathlib import Path

from farhand.store import Store

_migrated: list[bytes] = []


async def opened(path: Path, url: str = "") -> Store:
    """The store in the file ``path``, or at the ``url`` of a PostgreSQL database, empty when it is new."""
    if not url:
        _place(path, await _empty())
    return await Store.open(path, url=url)


async def _empty() -> bytes:
    if not _migrated:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "store.db"
            await (await Store.open(path)).close()
            _migrated.append(path.read_bytes())
    return _migrated[0]


def _place(path: Path, content: bytes) -> None:
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(0o600)
        path.write_bytes(content)
