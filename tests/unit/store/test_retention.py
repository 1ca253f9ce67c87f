"""Retention knows every table that hangs on a run."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from farhand.store import Store
from farhand.store.migrate import migrate, packaged
from farhand.store.retention import OF_JOB, OF_RUN


def test_every_table_that_refers_to_runs_or_jobs_is_emptied_before_them(tmp_path):
    with closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None)) as connection:
        migrate(connection, tmp_path / "s.db", packaged())
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        referring = {"runs": set(), "jobs": set()}
        for table in tables:
            for row in connection.execute(f"PRAGMA foreign_key_list({table})"):
                referring.setdefault(row[2], set()).add(table)
    assert referring["runs"] - {"jobs", "journals"} <= set(OF_RUN)
    assert referring["jobs"] <= set(OF_JOB)


@pytest.mark.anyio
async def test_deleting_a_flow_costs_the_writer_the_same_however_many_runs_it_has(tmp_path):
    """B125, counted in the steps that SQLite takes in the connection that writes."""
    store = await Store.open(tmp_path)
    few, many = [await _steps_of_deleting(store, flow, runs) for flow, runs in (("few", 2), ("many", 30_000))]
    await store.close()
    assert many <= few + 20


async def _steps_of_deleting(store: Store, flow: str, runs: int) -> int:
    """Tens of steps of SQLite's machine."""
    columns = (
        "flow, state, reason, message, params, created_at, project, origin, bundle, fingerprint, attempt"
    )
    insert = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
        f" INSERT INTO runs (id, ended_at, {columns})"
        " SELECT printf('%s%08d', ?, i), 1.0, ?, 'completed', '', '', '{}', 1.0, '', '', '', '', 1 FROM n"
    )
    await store.database.write(lambda connection: connection.execute(insert, (runs, flow, flow)))
    steps: list[None] = []
    store.database._writing.set_progress_handler(lambda: steps.append(None), 10)
    assert await store.retention.delete_flow(flow, 5.0) == runs
    store.database._writing.set_progress_handler(None, 0)
    return len(steps)
