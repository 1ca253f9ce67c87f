"""What only PostgreSQL has: an owner among servers, connections that get lost, transactions given up."""

from __future__ import annotations

import asyncio
import re
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from farhand.errors import Conflict, StoreFailed, StoreLocked, StoreTooNew, Unreachable, Usage
from farhand.store import Store
from farhand.store.database import Database
from farhand.store.guard import Connection, OperationRefused
from farhand.store.migrate import Migration, packaged
from farhand.store.postgresql import OwningSession
from tests.lab import postgresql
from tests.lab.postgresql import Cluster
from tests.optional import need

pytestmark = pytest.mark.anyio

THINGS = [Migration(1, "0001.sql", "CREATE TABLE things (name TEXT PRIMARY KEY, number BIGINT);")]
OWNER = re.search(r"CREATE TABLE owner.*?\);", packaged("postgresql")[0].sql, re.DOTALL)
assert OWNER is not None
NUMBERED = next(one for one in packaged("postgresql") if one.name.startswith("0044"))
SCHEMA = [Migration(1, "0001.sql", THINGS[0].sql + OWNER[0] + NUMBERED.sql)]


@pytest.fixture
def cluster() -> Cluster:
    """The shared cluster."""
    need("PostgreSQL")
    return postgresql.shared()


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    """A cluster that the test may stop."""
    need("PostgreSQL")
    with postgresql.cluster() as running:
        yield running


@pytest.fixture
async def database(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Database]:
    """An open database with one table."""
    opened = await Database.open(tmp_path / "home" / "store.db", migrations=SCHEMA, url=cluster.database())
    yield opened
    await opened.close()


def insert(name: str, number: Any = 0):
    def operation(connection: Connection) -> str:
        connection.execute("INSERT INTO things (name, number) VALUES (?, ?)", (name, number))
        return name

    return operation


async def names(database: Database) -> list[str]:
    return await database.read(
        lambda connection: [row[0] for row in connection.execute("SELECT name FROM things ORDER BY name")]
    )


def structure(cluster: Cluster, url: str) -> dict[str, Any]:
    """What a schema amounts to: columns, constraints and indexes."""
    name = url.rpartition("/")[2]
    columns = cluster.execute(
        "SELECT table_name, column_name, data_type, is_nullable, collation_name, is_identity, column_default"
        " FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, ordinal_position",
        name,
    )
    constraints = cluster.execute(
        "SELECT conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2",
        name,
    )
    indexes = cluster.execute(
        "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1", name
    )
    return {"columns": columns, "constraints": constraints, "indexes": indexes}


def test_the_readable_schema_is_what_the_migrations_make(cluster):
    read = cluster.database()
    text = (resources.files("farhand.store") / "schema.postgresql.sql").read_text("utf-8")
    cluster.execute(text, read.rpartition("/")[2])
    migrated = cluster.url(postgresql.migrated())
    assert structure(cluster, migrated) == structure(cluster, read)
    assert len(structure(cluster, read)["columns"]) > 100


def test_both_dialects_have_the_same_migrations():
    """A new file in migrations/sqlite needs its counterpart in migrations/postgresql."""
    assert [m.name for m in packaged("postgresql")] == [m.name for m in packaged("sqlite")]


async def test_a_second_server_is_refused_and_told_of_the_first(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr("farhand.store.postgresql.LEAVING_S", 0.1)
    url = cluster.database()
    first = await Store.open(tmp_path / "a", url=url)
    with pytest.raises(StoreLocked, match=r"the farhand server on \S+, process \d+, uses 127"):
        await Store.open(tmp_path / "b" / "store.db", url=url)
    await first.close()
    await (await Store.open(tmp_path / "b" / "store.db", url=url)).close()


async def test_a_database_that_was_closed_can_be_opened_though_postgresql_has_not_noticed(
    cluster, tmp_path, monkeypatch
):
    url = cluster.database()
    tries = iter([False] * 3)
    try_lock = OwningSession._try_lock
    monkeypatch.setattr(OwningSession, "_try_lock", lambda self: next(tries, True) and try_lock(self))
    for _ in range(5):
        opened = await Database.open(tmp_path / "store.db", migrations=SCHEMA, url=url)
        await opened.close()


async def test_a_server_whose_database_was_taken_over_can_write_nothing_more(cluster, tmp_path):
    url, deaths = cluster.database(), []
    database = await Database.open(tmp_path / "home" / "s.db", deaths.append, SCHEMA, url)
    await database.write(insert("a"))
    cluster.execute("UPDATE owner SET epoch = epoch + 1, host = 'elsewhere'", url.rpartition("/")[2])
    with pytest.raises(StoreFailed, match="elsewhere"):
        await database.write(insert("b"))
    assert await names(database) == ["a"]
    await database.close()
    assert len(deaths) == 1


async def test_text_is_kept_but_for_nul(database):
    for name in ("\0a", "ü\U0010ffff", "100% of '?'"):
        await database.write(insert(name))
    assert set(await names(database)) == {"\u2400a", "ü\U0010ffff", "100% of '?'"}
    with pytest.raises(UnicodeEncodeError):
        await database.write(insert("\ud800"))


async def test_errors_of_the_driver_are_translated(database):
    await database.write(insert("a", True))
    with pytest.raises(Conflict):
        await database.write(insert("a"))
    with pytest.raises(OverflowError):
        await database.write(insert("b", 2**70))
    assert await names(database) == ["a"]


@pytest.mark.parametrize("statement", ["COMMIT", "START TRANSACTION", "SET lock_timeout = 0", "ABORT"])
async def test_what_would_escape_the_shared_transaction_is_refused(database, statement):
    with pytest.raises(OperationRefused):
        await database.write(lambda connection: connection.execute(statement))


async def test_readers_cannot_write(database):
    with pytest.raises(Exception, match="read-only"):
        await database.read(insert("a"))


async def test_a_transaction_given_up_for_a_deadlock_is_run_again(database, cluster):
    """B126: whoever loses, no caller hears of it."""
    import psycopg

    await database.write(lambda c: c.executemany("INSERT INTO things VALUES (?, 0)", [("a",), ("b",)]))
    url = database._session._url  # type: ignore[attr-defined]
    tries, reached = [], threading.Event()

    def second_then_first(connection: Connection) -> int:
        tries.append(1)
        connection.execute("UPDATE things SET number = number + 1 WHERE name = 'b'")
        reached.set()
        connection.execute("UPDATE things SET number = number + 1 WHERE name = 'a'")
        return len(tries)

    def first_then_second() -> None:
        with psycopg.connect(url, options="-c deadlock_timeout=60s") as other:
            other.execute("UPDATE things SET number = number + 1 WHERE name = 'a'")
            writing.append(asyncio.run_coroutine_threadsafe(database.write(second_then_first), loop))
            reached.wait(30)
            other.execute("UPDATE things SET number = number + 1 WHERE name = 'b'")

    writing: list[Any] = []
    loop = asyncio.get_running_loop()
    await asyncio.to_thread(first_then_second)
    assert await asyncio.wrap_future(writing[0]) >= 2
    found = await database.read(lambda c: c.execute("SELECT number FROM things ORDER BY name").fetchall())
    assert found == [(2,), (2,)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT], ids=["fast", "crash"])
async def test_a_restart_of_postgresql_loses_and_doubles_nothing(own_cluster, tmp_path, number, monkeypatch):
    """B020: writes and reads that meet the restart wait for it, which takes its time on a busy machine."""
    monkeypatch.setattr("farhand.store.postgresql.RECONNECT_S", 60.0)
    url = own_cluster.database()
    database = await Database.open(tmp_path / "s.db", migrations=SCHEMA, url=url)
    written: list[str] = []
    begun = asyncio.Event()

    async def write(worker: int) -> None:
        for count in range(150):
            written.append(await database.write(insert(f"{worker}.{count:03}")))
            if len(written) == 50:
                begun.set()
            await asyncio.sleep(0)

    async def read() -> None:
        for _ in range(100):
            await names(database)
            await asyncio.sleep(0.01)

    def restart() -> None:
        own_cluster.stop(number)
        own_cluster.start()

    async def interrupt() -> None:
        await begun.wait()
        await asyncio.to_thread(restart)

    await asyncio.gather(*(write(worker) for worker in range(4)), read(), interrupt())
    assert await names(database) == sorted(written)
    assert len(written) == len(set(written)) == 600
    await database.close()


async def test_a_commit_whose_answer_was_lost_counts_as_what_it_was(database, monkeypatch):
    """The row must be there once, and its writer must not be told that it failed."""
    session: Any = database._session
    execute = session.connection.execute

    def cut(sql: bytes, *more: Any) -> Any:
        result = execute(sql, *more)
        if sql == b"COMMIT":
            session.connection.close()
            raise _lost()
        return result

    monkeypatch.setattr(session.connection, "execute", cut)
    assert await database.write(insert("a")) == "a"
    assert await names(database) == ["a"]


async def test_a_commit_that_a_crash_of_postgresql_took_is_made_again(own_cluster, tmp_path, monkeypatch):
    """Its number is given to others afterwards, who commit."""
    monkeypatch.setattr("farhand.store.postgresql.RECONNECT_S", 60.0)
    database = await Database.open(tmp_path / "s.db", migrations=SCHEMA, url=own_cluster.database())
    session: Any = database._session
    execute = session.connection.execute

    def crash(sql: bytes, *more: Any) -> Any:
        if sql != b"COMMIT":
            return execute(sql, *more)
        own_cluster.stop(signal.SIGQUIT)
        own_cluster.start()
        for _ in range(100):
            own_cluster.execute("SELECT pg_current_xact_id()")
        session.connection.close()
        raise _lost()

    monkeypatch.setattr(session.connection, "execute", crash)
    assert await database.write(insert("a")) == "a"
    assert await names(database) == ["a"]
    await database.close()


def _lost() -> Exception:
    import psycopg

    return psycopg.OperationalError("the answer was lost")


async def test_a_newer_database_is_refused_untouched(cluster, tmp_path):
    url = cluster.database()
    await (await Store.open(tmp_path, url=url)).close()
    cluster.execute("INSERT INTO schema_migrations VALUES (9999, 'x')", url.rpartition("/")[2])
    with pytest.raises(StoreTooNew, match="schema 9999"):
        await Store.open(tmp_path, url=url)


async def test_an_address_that_leads_nowhere_is_named_without_its_password(tmp_path):
    need("PostgreSQL")
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1/nothing cannot be used") as caught:
        await Store.open(tmp_path, url="postgresql://me:geheim@127.0.0.1:1/nothing")
    assert "geheim" not in str(caught.value)
    assert str(caught.value).endswith("Connection refused")
    with pytest.raises(Usage, match="like postgresql://"):
        await Store.open(tmp_path, url="mysql://x")
