"""Deleting never holds the writer for long: so many statements and rows a transaction, whatever there is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from farhand.blobs import Blobs
from farhand.engine import pruner
from farhand.engine.pruner import Pruner
from farhand.store import Store
from farhand.store.guard import Connection
from farhand.store.retention import BY_AGE

pytestmark = pytest.mark.anyio

RUNS, LINES = 300, 40


@dataclass
class Transactions:
    """How many statements each transaction ran, and how many rows it deleted."""

    statements: list[int] = field(default_factory=list[int])
    rows: list[int] = field(default_factory=list[int])
    writing: Connection | None = None


@pytest.fixture
def transactions(store: Store, monkeypatch: pytest.MonkeyPatch) -> Transactions:
    """What every write of the store did from now on."""
    seen = Transactions()
    write, execute = store.database.write, Connection.execute

    def executing(self: Connection, sql: Any, parameters: Any = ()) -> Any:
        cursor = execute(self, sql, parameters)
        if self is not seen.writing:
            return cursor
        seen.statements[-1] += 1
        if str(sql).startswith("DELETE"):
            seen.rows[-1] += cursor.rowcount
        return cursor

    async def writing(operation: Callable[[Connection], Any]) -> Any:
        def counted(connection: Connection) -> Any:
            seen.writing = connection
            seen.statements.append(0)
            seen.rows.append(0)
            return operation(connection)

        return await write(counted)

    monkeypatch.setattr(store.database, "write", writing)
    monkeypatch.setattr(Connection, "execute", executing)
    return seen


async def fill(store: Store, story: Any) -> None:
    """Many ended runs of one flow with many lines each, and many old rows of the tables that go by age."""
    leased = await story.running()
    await story.report(leased, story.result())
    numbers = "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {}) SELECT i FROM n)"
    runs, lines = (f"{numbers.format(count)} AS {name}" for count, name in ((RUNS, "r"), (LINES, "k")))
    new_id = "'old' || (100000 + r.i)"
    kept = "flow, state, reason, message, params, created_at, project, origin, bundle, fingerprint,"
    kept += " ended_at, attempt"
    audit = "at, role, actor, jti, address, action, subject, outcome, status, details"

    def insert(connection: Connection) -> None:
        for sql in (
            f"INSERT INTO runs (id, {kept}) SELECT {new_id}, {kept} FROM runs, {runs}",
            "INSERT INTO logs (run, last_number, first_number, attempt, lines)"
            f" SELECT {new_id}, k.i, k.i, 1, '[]' FROM {runs}, {lines}",
            f"INSERT INTO audit ({audit})"
            f" SELECT 1.0, '', '', '', '', '', '', '', 200, '{{}}' FROM {runs}, {lines}",
            "INSERT INTO events (at, kind, message, details)"
            f" SELECT 1.0, 'x', '', '{{}}' FROM {runs}, {lines}",
        ):
            connection.execute(sql)

    await store.database.write(insert)


async def test_pruning_goes_in_slices_of_bounded_rows_and_statements(
    store: Store, story: Any, tmp_path: Path, transactions: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(store, story)
    monkeypatch.setattr(pruner, "ROWS_MAX", 1000)
    keeper = Pruner(store, Blobs(tmp_path / "blobs"), keep_s=10.0, keep_audit_s=10.0)
    del transactions.statements[:], transactions.rows[:]
    await keeper.prune(1e9)
    assert sum(transactions.rows) > 3 * RUNS * LINES
    assert max(transactions.rows) <= 1000 + 2
    assert max(transactions.statements) <= 20 * pruner._BATCH
    assert (await store.runs.page(10)).items == []
    for table in (*BY_AGE, "logs"):
        left = f"SELECT count(*) FROM {table}"
        assert await store.database.read(lambda c, left=left: c.execute(left).fetchone()[0]) == 0


async def test_deleting_a_flow_takes_one_transaction_of_few_statements(
    store: Store, story: Any, transactions: Transactions
) -> None:
    """B125: its runs go later, in slices."""
    await fill(store, story)
    del transactions.statements[:], transactions.rows[:]
    assert await store.retention.delete_flow("etl", 5.0) == RUNS + 1
    assert len(transactions.statements) == 1
    assert transactions.statements[0] <= 12
    assert transactions.rows == [0]  # the flow was never served
