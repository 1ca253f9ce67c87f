"""What condition a store is in, for whoever looks after it: one look, which changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from .lock import LOCK_NAME, HomeLock
from .session import Session
from .sqlite import naming_damage, open_reading

PROBLEMS_MAX = 10


@dataclass(frozen=True, slots=True)
class StoreState:
    """``problems`` is what the database finds wrong with itself; sizes in ``details`` are bytes."""

    dialect: str
    version: str
    where: str
    details: dict[str, Any] = field(default_factory=dict[str, Any])
    problems: tuple[str, ...] = ()


def examine(connect: Callable[[], Session]) -> StoreState:
    """Look through a connection of its own, in one snapshot."""
    session: Any = connect()
    try:
        session.begin()
        return _LOOKS[session.guarded.dialect](session.connection)
    finally:
        session.rollback()
        session.close()


def examine_at_rest(path: Path) -> StoreState | None:
    """Look at a SQLite store that no server has open; None where there is none.

    Raises `StoreLocked` when a server has it, and `StoreDamaged` when nothing can be read of it.
    """
    if not path.exists():
        return None
    lock = HomeLock(path.with_name(LOCK_NAME))
    try:
        with naming_damage(path):
            return examine(partial(open_reading, path))
    finally:
        lock.release()


def _sqlite(connection: Any) -> StoreState:
    def pragma(name: str) -> list[Any]:
        return [row[0] for row in connection.execute(f"PRAGMA {name}").fetchall()]

    path = Path(connection.execute("PRAGMA database_list").fetchone()[2])
    wal = path.with_name(f"{path.name}-wal")
    found = [str(line) for line in pragma(f"quick_check({PROBLEMS_MAX})")]
    details = {
        "schema": pragma("user_version")[0],
        "journal_mode": pragma("journal_mode")[0],
        "page_size": pragma("page_size")[0],
        "page_count": pragma("page_count")[0],
        "free_pages": pragma("freelist_count")[0],
        "size": path.stat().st_size,
        "wal_size": wal.stat().st_size if wal.exists() else 0,
        "quick_check": "ok" if found == ["ok"] else "failed",
    }
    version = connection.execute("SELECT sqlite_version()").fetchone()[0]
    return StoreState("sqlite", version, str(path), details, () if found == ["ok"] else tuple(found))


def _postgresql(connection: Any) -> StoreState:
    row = connection.execute(
        b"SELECT current_setting('server_version'), current_database(), pg_database_size(current_database())"
    ).fetchone()
    return StoreState("postgresql", row[0], row[1], {"size": row[2]})


_LOOKS: dict[str, Callable[[Any], StoreState]] = {"sqlite": _sqlite, "postgresql": _postgresql}
