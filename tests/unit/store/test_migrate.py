"""Migrations: all or nothing, backed up, never down; and the readable schema is the real one."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from importlib import resources
from pathlib import Path

import pytest

from farhand.errors import StoreDamaged, StoreFailed, StoreLocked, StoreTooNew
from farhand.store import Store
from farhand.store.database import Database
from farhand.store.migrate import Migration, migrate, packaged, statements

pytestmark = pytest.mark.anyio

FIRST = Migration(1, "0001_first.sql", "CREATE TABLE a (n INTEGER); INSERT INTO a VALUES (1);\n")
SECOND = Migration(2, "0002_second.sql", "ALTER TABLE a ADD COLUMN m TEXT;\nUPDATE a SET m = 'x';\n")


def connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def structure(connection: sqlite3.Connection) -> dict[str, object]:
    """What a schema amounts to, whatever it looks like as text."""
    found: dict[str, object] = {}
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in tables:
        found[table] = connection.execute(f"PRAGMA table_xinfo({table})").fetchall()
        found[f"{table} references"] = connection.execute(f"PRAGMA foreign_key_list({table})").fetchall()
    for name, sql in connection.execute("SELECT name, sql FROM sqlite_master WHERE type <> 'table'"):
        found[name] = re.sub(r"\s+", " ", sql or "")
    return found


def test_the_readable_schema_is_what_the_migrations_make(tmp_path):
    with closing(connect(tmp_path / "migrated.db")) as migrated, closing(connect(tmp_path / "s.db")) as read:
        migrate(migrated, tmp_path / "migrated.db", packaged())
        read.executescript((resources.files("farhand.store") / "schema.sql").read_text("utf-8"))
        assert structure(migrated) == structure(read)
        assert len(structure(read)) > 20


def test_the_packaged_migrations_are_numbered_in_order_and_each_number_is_given_once():
    numbers = [migration.number for migration in packaged()]
    assert numbers == sorted(set(numbers))
    assert numbers[0] == 1


def test_a_migration_of_an_existing_store_is_backed_up_first(tmp_path):
    """B122: what an upgrade starts from can be had back."""
    path = tmp_path / "store.db"
    with closing(connect(path)) as connection:
        migrate(connection, path, [FIRST])
        assert list(tmp_path.glob("*.backup")) == []
        migrate(connection, path, [FIRST, SECOND])
        assert connection.execute("SELECT n, m FROM a").fetchall() == [(1, "x")]
    backup = tmp_path / "store.db.schema-1.backup"
    assert backup.stat().st_mode & 0o777 == 0o600
    with closing(connect(backup)) as copy:
        assert copy.execute("SELECT * FROM a").fetchall() == [(1,)]
        assert copy.execute("PRAGMA user_version").fetchone() == (1,)


def test_an_upgrade_says_how_far_it_has_come_and_a_new_store_says_nothing(tmp_path, caplog):
    """B121."""
    caplog.set_level("INFO")
    path = tmp_path / "store.db"
    with closing(connect(path)) as connection:
        migrate(connection, path, [FIRST])
        assert caplog.messages == []
        migrate(connection, path, [FIRST, SECOND])
    assert caplog.messages == [
        "the store is of schema 1 and is copied before it is upgraded",
        f"the store is upgraded by {SECOND.name}, the last is {SECOND.name}",
    ]


def test_a_migration_that_fails_leaves_the_store_as_it_was(tmp_path):
    """B121: an interrupted upgrade can simply be run again."""
    path = tmp_path / "store.db"
    broken = Migration(2, "0002_broken.sql", SECOND.sql + "INSERT INTO nowhere VALUES (1);\n")
    with closing(connect(path)) as connection:
        migrate(connection, path, [FIRST])
        before = structure(connection)
        with pytest.raises(sqlite3.OperationalError):
            migrate(connection, path, [FIRST, broken])
        assert structure(connection) == before
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
        migrate(connection, path, [FIRST, SECOND])
        migrate(connection, path, [FIRST, SECOND])
        assert connection.execute("SELECT n, m FROM a").fetchall() == [(1, "x")]


def test_a_migration_that_breaks_a_reference_is_refused(tmp_path):
    path = tmp_path / "store.db"
    orphan = Migration(
        2,
        "0002_orphan.sql",
        "CREATE TABLE p (id INTEGER PRIMARY KEY); CREATE TABLE c (p INTEGER REFERENCES p (id));\n"
        "INSERT INTO c VALUES (7);\n",
    )
    with closing(connect(path)) as connection:
        migrate(connection, path, [FIRST])
        with pytest.raises(StoreFailed, match="without its parent"):
            migrate(connection, path, [FIRST, orphan])
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)


def test_a_script_is_cut_into_its_statements():
    script = "-- why\nCREATE TABLE a (b TEXT DEFAULT ';');\n\nINSERT INTO a\nVALUES (';');\n"
    assert [" ".join(s.split()) for s in statements(script)] == [
        "-- why CREATE TABLE a (b TEXT DEFAULT ';');",
        "INSERT INTO a VALUES (';');",
    ]
    with pytest.raises(StoreFailed, match="middle of a statement"):
        list(statements("CREATE TABLE a (b"))


async def test_a_newer_store_is_refused_and_untouched(tmp_path):
    """B122: an older program changes nothing in a store it does not know."""
    path = tmp_path / "store.db"
    newer = [*packaged(), Migration(9000, "9000_future.sql", "CREATE TABLE future (n INTEGER);\n")]
    await (await Database.open(path, migrations=newer)).close()
    before = path.read_bytes(), path.stat().st_mtime_ns
    with pytest.raises(StoreTooNew, match="schema 9000"):
        await Store.open(path)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    await (await Database.open(path, migrations=newer)).close()


async def test_a_home_has_one_owner_and_the_other_is_told_who(tmp_path):
    import os

    first = await Store.open(tmp_path / "home")
    with pytest.raises(StoreLocked, match=f"process {os.getpid()} owns") as refused:
        await Store.open(tmp_path / "home")
    assert refused.value.details["pid"] == os.getpid()
    await first.close()
    await (await Store.open(tmp_path / "home")).close()


async def test_a_refused_store_gives_the_home_up_again(tmp_path):
    path = tmp_path / "home" / "store.db"
    path.parent.mkdir()
    path.write_bytes(b"this is no database at all, whatever its name says" * 100)
    for _ in range(2):
        with pytest.raises(StoreDamaged):
            await Store.open(path)


async def test_a_directory_means_the_store_in_it(tmp_path):
    (await (await Store.open(tmp_path)).close())
    assert (tmp_path / "store.db").exists()
    assert (await (await Store.open(tmp_path / "new" / "store.db")).close()) is None
