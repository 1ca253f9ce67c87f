"""A SQLite store as the migrations leave it, to copy: to migrate a new one takes five times as long."""

from __future__ import annotations

import tempfile
from pathlib import Path

from farhand.resources import Capacity
from farhand.store import Leased, Store
from farhand.store.claims import Claim

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


async def handed(
    store: Store, job: str, worker: str, capacity: Capacity, now: float, fell_back: bool = False
) -> Leased | None:
    """A queued job as it is handed to a worker, if it is."""
    (made,) = await store.jobs.lease([Claim(worker, capacity, job, fell_back=fell_back)], now)
    return made
