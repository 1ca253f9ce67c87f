"""Retention knows every table that hangs on a run."""

from __future__ import annotations

import sqlite3
from contextlib import closing

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
