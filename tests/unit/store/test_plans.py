"""Every statement that runs with a server's work finds its rows by an index, however many there are."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from farhand.lifecycle import Ending
from farhand.model import Ask, Job, JobSettings, Run
from farhand.resources import Capacity
from farhand.store import Store
from farhand.store.calls import called_by
from farhand.store.claims import Claim
from farhand.store.retention import BY_AGE, NOT_DELETED
from farhand.store.runs import Wanted
from farhand_worker import protocol
from tests.harness.stores import handed

pytestmark = pytest.mark.anyio

WHOLE = {"flows", "workers", "tokens", "meta", "json_each", "events", "deletions", "counted", "latest"}
"""Small tables that are listed whole, the event log, which is paged along its primary key, and what a limited
selection, or one of a single row, has found."""

PARTIAL = {"jobs_queued", "jobs_held", "runs_of_scripts"}
"""Indexes of only the rows that are looked for; walking one of these is not a scan of the table."""


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The statements that operations run, as they are written."""
    from farhand.store.guard import Connection

    seen: set[str] = set()
    vet = Connection._vet

    def note(self: Connection, sql: str) -> None:
        seen.add(sql)
        vet(self, sql)

    monkeypatch.setattr(Connection, "_vet", note)
    return seen


async def everything(store: Store) -> None:
    """Walk through every noun of the store."""
    for number in range(3):
        key = f"k{number}"
        run = Run(f"r{number}", "f", "queued", "new", "", "{}", 1.0, idempotency_key=key)
        settings = JobSettings(retries=1)
        job = Job(f"j{number}", run.id, "run", "queued", "f", "m:f", {}, "", Ask(), settings, 1.0, 1.0)
        await store.runs.create(run, job)
        for _ in range(2):
            leased = await handed(store, job.id, "w", Capacity(9), 2.0)
            assert leased is not None
            lease = leased.job.lease or 0
            events: list[Any] = [
                protocol.Started(3.0, 1, "3"),
                protocol.Log(3.0, "x"),
                protocol.Metric(3.0, {"a": 1.0}),
                protocol.TaskBegan("t", "t", 3.0),
                protocol.Checkpoint("t", "t", "completed", 3.0, 4.0),
                protocol.Artifact("a", "sha256:1", 1, 3.0),
                protocol.Call("c", "c", "m:c", {}, {}, 3.0),
                protocol.Call("d", "d", "m:d", {}, {}, 3.0),
            ]
            await store.reports.record(job.id, lease, "engine", 1, events, 5.0)
            alone = [protocol.Call("g", "g", "m:g", {}, {}, 3.0)]
            foreseen = called_by(leased.job, alone[0], "", 5.0)
            claims = [Claim("w", Capacity(9), key="g", run=run.id, call=foreseen)]
            await store.reports.record(job.id, lease, "engine", len(events) + 1, alone, 5.0, None, claims)
            await store.reports.end(job.id, lease, Ending("failed" if number else "crashed"), 6.0)
        if call := await handed(store, f"r{number}.3", "w", Capacity(9), 2.0):
            events = [protocol.Started(3.0, 1, "3"), protocol.Result("completed", 4.0)]
            await store.reports.record(call.job.id, call.job.lease or 0, "engine", 1, events, 5.0, "w")
        if call := await handed(store, f"r{number}.2", "w", Capacity(9), 2.0):
            events = [
                protocol.Started(3.0, 1, "3"),
                protocol.Call("e", "e", "m:e", {}, {}, 3.0, scope="c"),
                protocol.Result("completed", 4.0),
            ]
            await store.reports.record(call.job.id, call.job.lease or 0, "engine", 1, events, 5.0)
    await store.runs.cancel("r0", 7.0)
    script = ["script", {"run": "s", "flow": "f", "params": {}, "at": 1.0}]
    await store.journals.record("s", 1, [script, ["log", {"at": 1.0, "text": "x"}]], 2.0)
    await store.journals.open_runs()
    await store.journals.crash("s", 3.0, "gone")
    await store.jobs.queued()
    await store.jobs.held()
    await store.runs.find("r")
    await store.runs.attempts("r0")
    await store.workers.attempts("w", 0.0, 10)
    await store.reports.mark_overlap("w", [1])
    for flow in (None, "f"):
        for state in (None, "queued"):
            for cursor in (None, "r2"):
                await store.runs.page(2, cursor, Wanted(flow, state))
    await store.tasks.page("r0")
    await store.tasks.page("r0", state="failed")
    await store.tasks.tally("r0")
    for job_id in ("j0", "r0.2"):
        await store.tasks.kept(job_id)
        await store.tasks.placed(job_id)
    await store.logs.page("r0")
    await store.metrics.page("r0")
    await store.artifacts.list("r0")
    await store.events.page()
    await store.events.page(run="r0")
    await store.reports.recorded("j0", 1)
    await store.reports.is_current("j0", 1)
    await store.runs.page(2, "r2", Wanted(host="h"))
    await store.retention.expired(1e9, 10)
    await store.retention.delete(["r1", "s"], 1000)
    for table in BY_AGE:
        await store.retention.delete_old(table, 1e9, 10)
    await store.retention.delete_flow("f", 8.0)
    await store.retention.doomed(10)


def scans(connection: sqlite3.Connection, sql: str) -> list[str]:
    plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", (None,) * sql.count("?")).fetchall()
    found: list[str] = []
    for *_, detail in plan:
        words = detail.split()
        walks = words[0] == "SCAN" and words[1] not in (*WHOLE, "CONSTANT") and words[-1] not in PARTIAL
        if walks or "TEMP B-TREE" in detail:
            found.append(detail)
    return found


async def test_no_statement_scans_a_table_that_grows(tmp_path: Path, statements: set[str]):
    """B124: a page, the queue, a worker's slots and a run's details cost the same behind a million runs."""
    store = await Store.open(tmp_path)
    await everything(store)
    await store.close()
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        slow = {sql: found for sql in sorted(statements) if (found := scans(connection, sql))}
    page = [sql for sql in slow if f"FROM runs WHERE {NOT_DELETED} ORDER BY id DESC LIMIT" in sql]
    for sql in page:  # the first page walks the primary key from its end and stops
        assert slow.pop(sql)[0].startswith("SCAN runs USING INDEX sqlite_autoindex_runs_1")
    assert not slow, "\n".join(f"{sql}: {found}" for sql, found in slow.items())
    assert len(statements) > 50


async def test_what_is_open_of_a_run_is_looked_for_in_what_waits_and_what_is_held(
    tmp_path: Path, statements: set[str]
):
    """A run may have had any number of calls, and those of them that are open are few."""
    store = await Store.open(tmp_path)
    await everything(store)
    await store.close()
    looking = {"jobs_waiting": "('queued', 'parked')", "jobs_held": "jobs INDEXED BY jobs_held"}
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        for index, words in looking.items():
            of_runs = [sql for sql in statements if words in sql and "kind <> 'run'" in sql]
            assert of_runs
            for sql in of_runs:
                plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", (None,) * sql.count("?")).fetchall()
                assert any(index in detail for *_, detail in plan), sql
                assert not any("jobs_of_run" in detail for *_, detail in plan), sql
