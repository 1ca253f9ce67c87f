"""The writer: shared commits, savepoints, refusals, and what happens when it ends."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from farhand.errors import Conflict, StoreClosed, StoreFailed
from farhand.store.database import Database
from farhand.store.guard import Connection, OperationRefused
from farhand.store.migrate import Migration

pytestmark = pytest.mark.anyio

SCHEMA = [Migration(1, "0001.sql", "CREATE TABLE things (name TEXT PRIMARY KEY);")]


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await Database.open(tmp_path / "store.db", migrations=SCHEMA)
    yield opened
    await opened.close()


def insert(name: str):
    def operation(connection: Connection) -> str:
        connection.execute("INSERT INTO things VALUES (?)", (name,))
        return name

    return operation


async def names(database: Database) -> list[str]:
    return await database.read(
        lambda connection: [row[0] for row in connection.execute("SELECT name FROM things ORDER BY name")]
    )


def hold(database: Database) -> tuple[threading.Event, asyncio.Future[object]]:
    """An operation that keeps the writer until the event is set."""
    gate = threading.Event()
    return gate, asyncio.ensure_future(database.write(lambda connection: gate.wait(30)))


async def gather_behind(database: Database, *operations) -> list[object]:
    """Run operations that all wait before the first of them begins."""
    gate, held = hold(database)
    await asyncio.sleep(0)
    writes = [asyncio.ensure_future(database.write(operation)) for operation in operations]
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_later(0.03, gate.set)
    results = await asyncio.gather(*writes, return_exceptions=True)
    await held
    return results


async def test_a_write_is_durable_for_another_connection_when_it_returns(database, tmp_path):
    assert await database.write(insert("a")) == "a"
    with sqlite3.connect(tmp_path / "store.db") as other:
        assert other.execute("SELECT name FROM things").fetchall() == [("a",)]
    other.close()
    assert await names(database) == ["a"]


async def test_many_waiting_writes_share_few_commits(database):
    before = database.commits
    results = await gather_behind(database, *(insert(f"n{n:04}") for n in range(500)))
    assert len(results) == 500
    assert len(await names(database)) == 500
    assert database.commits - before <= 20
    assert database.operations == 501


async def test_a_single_write_is_one_commit(database):
    before = database.commits
    for name in "abc":
        await database.write(insert(name))
    assert database.commits - before == 3


async def test_a_batch_takes_nothing_more_once_it_is_old(database):
    gate, held = hold(database)
    await asyncio.sleep(0)
    later = asyncio.ensure_future(database.write(insert("a")))
    await asyncio.sleep(0)
    before = database.commits
    asyncio.get_running_loop().call_later(0.03, gate.set)
    await held
    await later
    assert database.commits - before == 2


async def test_an_operation_that_raises_leaves_no_trace_and_its_siblings_stay(database):
    def bad(connection: Connection) -> None:
        connection.execute("INSERT INTO things VALUES ('bad')")
        raise ValueError("no")

    results = await gather_behind(database, insert("a"), bad, insert("b"))
    assert results[0] == "a"
    assert isinstance(results[1], ValueError)
    assert results[2] == "b"
    assert await names(database) == ["a", "b"]


async def test_a_broken_constraint_is_a_conflict_and_no_error_of_the_driver(database):
    results = await gather_behind(database, insert("a"), insert("a"), insert("b"))
    assert [type(result) for result in results] == [str, Conflict, str]
    assert await names(database) == ["a", "b"]


@pytest.mark.parametrize(
    "statement",
    [
        "BEGIN",
        "commit",
        "END TRANSACTION",
        " ROLLBACK",
        "/* a */ -- b\n COMMIT",
        "SAVEPOINT x",
        "RELEASE operation",
        "INSERT OR ROLLBACK INTO things VALUES ('x')",
        "UPDATE or  rollback things SET name = 'x'",
        "ATTACH 'x' AS y",
        "PRAGMA synchronous = OFF",
        "VACUUM",
        "",
    ],
)
async def test_what_would_escape_the_shared_transaction_is_refused(database, statement):
    results = await gather_behind(database, insert("a"), lambda c: c.execute(statement), insert("b"))
    assert [type(result) for result in results] == [str, OperationRefused, str]
    assert await names(database) == ["a", "b"]


@pytest.mark.parametrize("whose", ["connection", "cursor"])
async def test_scripts_are_refused(database, whose):
    def script(connection: Connection) -> None:
        target = connection if whose == "connection" else connection.execute("SELECT 1")
        target.executescript("INSERT INTO things VALUES ('x'); COMMIT;")

    results = await gather_behind(database, insert("a"), script)
    assert [type(result) for result in results] == [str, OperationRefused]
    assert await names(database) == ["a"]


async def test_a_commit_that_fails_fails_all_of_its_batch_and_the_writer_goes_on(database):
    """A deferred constraint is checked by COMMIT itself."""

    def orphan(connection: Connection) -> None:
        connection.execute("INSERT INTO things VALUES ('orphan')")
        connection.execute(
            "CREATE TABLE child (n TEXT REFERENCES things (name) DEFERRABLE INITIALLY DEFERRED)"
        )
        connection.execute("INSERT INTO child VALUES ('nobody')")

    # The foreign key is still broken when COMMIT comes, which refuses it and leaves the transaction open.
    results = await gather_behind(database, insert("a"), orphan, insert("b"))
    assert [type(result) for result in results] == [StoreFailed] * 3
    assert await names(database) == []
    assert await database.write(insert("c")) == "c"


async def test_a_store_that_another_process_has_locked_fails_the_write_and_recovers(database, tmp_path):
    """B127: a busy store is an error that passes, never a writer that is gone."""
    database._writing.execute("PRAGMA busy_timeout = 0")
    intruder = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    intruder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreFailed, match="locked"):
        await database.write(insert("a"))
    intruder.execute("ROLLBACK")
    intruder.close()
    assert await database.write(insert("a")) == "a"


async def test_a_caller_that_gives_up_does_not_hurt_the_others(database):
    gate, held = hold(database)
    await asyncio.sleep(0)
    given_up = asyncio.ensure_future(database.write(insert("a")))
    other = asyncio.ensure_future(database.write(insert("b")))
    await asyncio.sleep(0)
    given_up.cancel()
    gate.set()
    assert await other == "b"
    await held
    with pytest.raises(asyncio.CancelledError):
        await given_up


async def test_the_death_of_the_writer_fails_what_waits_and_all_that_comes_and_is_told(tmp_path):
    deaths: list[BaseException] = []
    database = await Database.open(tmp_path / "store.db", deaths.append, SCHEMA)

    def fatal(connection: Connection) -> None:
        raise SystemExit("the thread ends")

    results = await gather_behind(database, insert("a"), fatal, insert("b"))
    assert [type(result) for result in results] == [StoreFailed] * 3
    with pytest.raises(StoreFailed, match="writer has ended"):
        await database.write(insert("c"))
    assert await names(database) == []
    await database.close()
    assert [type(death) for death in deaths] == [SystemExit]


async def test_closing_commits_what_waits_and_refuses_what_comes(tmp_path):
    database = await Database.open(tmp_path / "store.db", migrations=SCHEMA)
    writes = [asyncio.ensure_future(database.write(insert(name))) for name in "abc"]
    await asyncio.sleep(0)
    await database.close()
    assert [await write for write in writes] == ["a", "b", "c"]
    with pytest.raises(StoreClosed):
        await database.write(insert("d"))
    with pytest.raises(StoreClosed):
        await names(database)
    await database.close()
    assert not (tmp_path / "store.db-wal").exists()
    again = await Database.open(tmp_path / "store.db", migrations=SCHEMA)
    assert await names(again) == ["a", "b", "c"]
    await again.close()


async def test_readers_cannot_write(database):
    with pytest.raises(StoreFailed, match="cannot be read"):
        await database.read(insert("a"))


async def test_a_read_sees_one_moment_while_writes_go_on(database):
    await database.write(insert("a"))
    reading, written = threading.Event(), threading.Event()

    def twice(connection: Connection) -> tuple[int, int]:
        first = connection.execute("SELECT count(*) FROM things").fetchone()[0]
        reading.set()
        written.wait(30)
        return first, connection.execute("SELECT count(*) FROM things").fetchone()[0]

    read = asyncio.ensure_future(database.read(twice))
    await asyncio.to_thread(reading.wait, 30)
    await database.write(insert("b"))
    written.set()
    assert await read == (1, 1)


async def test_the_store_is_synchronous_full_with_a_write_ahead_log(database, tmp_path):
    settings = [
        database._writing.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "foreign_keys")
    ]
    assert settings == ["wal", 2, 1]
    assert (tmp_path / "store.db").stat().st_mode & 0o777 == 0o600


async def test_a_cursor_does_not_leave_the_writers_thread(database):
    """Let go elsewhere, it would reset a statement that the writer is running again."""
    given = await database.write(lambda connection: connection.execute("INSERT INTO things VALUES ('a')"))
    assert given is None
