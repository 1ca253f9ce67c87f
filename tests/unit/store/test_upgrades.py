"""Upgrades of a store that was in use: nothing in it is lost or changed, wherever they are interrupted."""

from __future__ import annotations

import hashlib
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from farhand.store import Store
from farhand.store.migrate import migrate, packaged, statements, version_of

pytestmark = pytest.mark.anyio

ODD = ("x", "", "\u0000", "\U0010ffff", "'; DROP TABLE runs; --", "9" * 400, "{not json")
"""Text that no version of ours ever wrote."""

CHANGED = {("flows", "settings"), ("jobs", "settings")}
"""Columns whose values a migration rewrites on purpose."""

OPEN = """
import asyncio, os, signal, sys
from pathlib import Path
from farhand.store import Store, migrate

statements, left = migrate.statements, int(sys.argv[2])

def killing(script):
    global left
    for statement in statements(script):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        yield statement

async def main():
    migrate.statements = killing
    await (await Store.open(Path(sys.argv[1]))).close()

asyncio.run(main())
"""
"""Opens a store, and is killed before the n-th statement of its migrations."""


def an_old_store(path: Path, rows: int) -> None:
    """A store of the first schema with rows in every table, odd values and NULL wherever they may be."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, path, packaged()[:1])
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("BEGIN")
        for table in tables(connection):
            if table == "meta":
                continue
            columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
            marks = ", ".join("?" * len(columns))
            connection.executemany(
                f"INSERT INTO {table} VALUES ({marks})",
                ([value(column, number) for column in columns] for number in range(1, rows + 1)),
            )
        connection.execute("INSERT INTO meta VALUES (1, 'abc', 7)")
        connection.execute("COMMIT")


def value(column: tuple, number: int) -> object:
    _, name, kind, required, _, key = column
    if name == "settings":
        return '{"retry_delay_s": 1.5}'
    if key or name in ("run", "job", "number", "key", "last_number", "idempotency_key", "lease"):
        return number if kind == "INTEGER" else f"{number:06}"
    if not required and number % 3 == 0:
        return None
    return number if kind in ("INTEGER", "REAL") else ODD[number % len(ODD)]


def tables(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    return [row[0] for row in rows if not row[0].startswith("sqlite_")]


def contents(path: Path, columns: dict[str, list[str]] | None = None) -> dict[str, tuple[int, str]]:
    """Of each table, how many rows it has and a checksum over the columns given, or all it has."""
    found: dict[str, tuple[int, str]] = {}
    with closing(sqlite3.connect(path)) as connection:
        for table, names in (columns or columns_of(connection)).items():
            kept = [name for name in names if (table, name) not in CHANGED]
            rows = connection.execute(f"SELECT {', '.join(kept)} FROM {table}").fetchall()
            found[table] = len(rows), hashlib.sha256(repr(sorted(map(repr, rows))).encode()).hexdigest()
    return found


def columns_of(connection: sqlite3.Connection) -> dict[str, list[str]]:
    return {t: [row[1] for row in connection.execute(f"PRAGMA table_info({t})")] for t in tables(connection)}


async def test_an_upgrade_changes_no_row_that_was_there(tmp_path: Path) -> None:
    """B122: counts and checksums of every table, before and after all migrations."""
    path = tmp_path / "store.db"
    an_old_store(path, 500)
    with closing(sqlite3.connect(path)) as connection:
        columns = columns_of(connection)
    before = contents(path)
    await (await Store.open(path)).close()
    assert contents(path, columns) == before
    assert len(before) > 10
    assert contents(tmp_path / "store.db.schema-1.backup") == before


@pytest.mark.parametrize("part", [0.0, 0.3, 0.6, 0.99])
def test_an_upgrade_that_is_killed_anywhere_goes_on_at_the_next_start(tmp_path: Path, part: float) -> None:
    """B121: each migration is all or nothing, and no start fails after it."""
    path = tmp_path / "store.db"
    an_old_store(path, 2_000)
    with closing(sqlite3.connect(path)) as connection:
        columns = columns_of(connection)
    before = contents(path)
    waiting = [list(statements(migration.sql)) for migration in packaged()[1:]]
    total = sum(map(len, waiting))
    at = 1 + int(part * total)
    killed = subprocess.run([sys.executable, "-c", OPEN, str(path), str(at)])
    assert killed.returncode == -signal.SIGKILL
    assert contents(path, columns) == before
    assert version_of(path) == _finished_before(at, waiting)
    subprocess.run([sys.executable, "-c", OPEN, str(path), "0"], check=True)
    assert contents(path, columns) == before
    assert version_of(path) == packaged()[-1].number


def _finished_before(at: int, waiting: list[list[str]]) -> int:
    """The number of the last migration that was whole before the n-th statement of the rest."""
    version = packaged()[0].number
    for migration, its in zip(packaged()[1:], waiting, strict=True):
        at -= len(its)
        if at <= 0:
            return version
        version = migration.number
    return version
