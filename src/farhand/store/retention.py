"""Retention: what is deleted, and in pieces so small that nobody who writes has to wait.

A run is deleted from its outermost rows inwards and its own row goes last, so a deletion that is interrupted
anywhere is gone on with by asking again. Only what is over is deleted: a run that has ended and has no open
job. A slice is one transaction that deletes a limited number of rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import Conflict, NotFound
from ..lifecycle import RUN, is_terminal
from ..model import DECLARED
from .changes import Effects
from .database import Database
from .guard import Connection
from .run_blobs import MARK
from .services import replace_services_of
from .timetables import forget_schedules
from .versions import forget_versions

NOT_DELETED = (
    "runs.origin <> 'service' AND NOT EXISTS"
    " (SELECT 1 FROM deletions WHERE deletions.flow = runs.flow AND runs.id <= deletions.last_run)"
)
"""A condition on runs: those of a deleted flow are gone for everybody but the pruner, and what a service has
in this table is no run."""

ENDED = (
    "runs.ended_at IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM jobs"
    " WHERE jobs.run = coalesce(runs.root, runs.id) AND jobs.state <> 'ended')"
    " AND NOT EXISTS (SELECT 1 FROM runs AS roots WHERE roots.id = runs.root AND roots.ended_at IS NULL)"
)
"""A condition on runs: nobody will report about them any more, nor about those that called them."""

OF_RUN = {
    "logs": "last_number",
    "metrics": "last_number",
    "stream_values": "id",
    "streams": "id",
    "task_runs": "number",
    "artifacts": "id",
    "run_blobs": "digest",
    "events": "id",
}
"""Tables with rows of a run, and the column that tells those of one run apart."""

OF_JOB = {"recorded": "lease", "attempts": "lease"}
"""Tables with rows of a job, and the column that tells those of one job apart, but for a few."""

BY_AGE = {
    "events": ("id", "run IS NULL"),
    "fires": (
        "schedule, at",
        "at < (SELECT max(others.at) FROM fires AS others WHERE others.schedule = fires.schedule)",
    ),
    "audit": ("id", "1 = 1"),
}
"""Tables whose rows go by their age: their key, and which of them may go. A schedule's latest fire stays."""

COUNTED_MAX = 10_000
"""How many rows are counted in one transaction."""

_UNDER_WAY = tuple(state for state in RUN if not is_terminal(RUN, state))

_BLOB_BEARERS = (
    ("artifacts", ("id",), "digest"),
    ("flows", ("name",), "bundle, fingerprint"),
    ("projects", ("name",), "bundle"),
    ("runs", ("id",), "bundle, fingerprint, params, result, error"),
    ("versions", ("flow", "number"), "bundle, fingerprint"),
    ("jobs", ("id",), "bundle, fingerprint, args"),
    ("task_runs", ("run", "key"), "value, error"),
    ("services", ("name",), "bundle, fingerprint, spec"),
    ("stream_values", ("id",), "items"),
)
"""Where digests of blobs may stand: table, key, columns."""


@dataclass(slots=True)
class Slice:
    """What one transaction deleted, how long it took, and which runs it refused because they are not over."""

    rows: int = 0
    deleted: list[str] = field(default_factory=list[str])
    refused: list[str] = field(default_factory=list[str])
    took_s: float = 0.0


class Retention:
    """Finds what is old and deletes it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def expired(self, before: float, limit: int) -> list[str]:
        """Runs that ended before a moment, those that ended first at the beginning.

        The runs of flows that they had called are deleted with them.
        """
        sql = (
            f"SELECT id FROM runs WHERE ended_at < ? AND root IS NULL AND {ENDED}"
            " ORDER BY ended_at, id LIMIT ?"
        )
        return await self._database.read(lambda connection: _column(connection, sql, (before, limit)))

    async def delete(self, run_ids: Sequence[str], rows_max: int) -> Slice:
        """Delete up to ``rows_max`` rows of these runs, in their order, and the runs that have no more."""
        return await self._database.write(lambda connection: _delete(connection, run_ids, rows_max))

    async def delete_old(self, table: str, before: float, rows_max: int) -> Slice:
        """Delete up to ``rows_max`` rows older than a moment of a table of `BY_AGE`."""
        return await self._database.write(lambda connection: _delete_old(connection, table, before, rows_max))

    async def delete_flow(
        self,
        flow: str,
        now: float,
        *,
        forced: bool = False,
        project: str = "",
        expected: str | None = None,
        effects: Effects | None = None,
    ) -> int:
        """Hide a flow and all its runs at once; `doomed` lists them for whoever deletes them.

        The services of one that was put are stopped, and what follows from that is in ``effects``.

        Returns how many there are. Raises `NotFound`, or `Conflict` while a project has it, if not the one
        named here, or, unless ``forced``, a run of it is under way; and `Changed` if its newest version is
        not the ``expected`` one.
        """
        follows = Effects() if effects is None else effects
        runs, after = 0, await self._database.read(lambda connection: _last_deleted(connection, flow))
        while True:  # counted outside the writer, which a flow of a million runs would hold for long
            counted, after = await self._database.read(
                lambda connection, after=after: _count_after(connection, flow, after)
            )
            runs += counted
            if counted < COUNTED_MAX:
                break
        return await self._database.write(
            lambda connection: _delete_flow(connection, flow, runs, now, forced, project, expected, follows)
        )

    async def doomed(self, limit: int) -> list[str]:
        """Runs of deleted flows. A flow that has no more is forgotten."""
        return await self._database.write(lambda connection: _doomed(connection, limit))

    async def digests(self, limit: int = 500) -> set[str]:
        """The digest of every blob that any record names, read page by page."""
        found: set[str] = set()
        for table, key, columns in _BLOB_BEARERS:
            after: tuple[Any, ...] | None = None
            while True:
                sql, values = _page_of(table, key, columns, after)
                rows = await self._database.read(
                    lambda connection, sql=sql, values=values: connection.execute(
                        sql, (*values, limit)
                    ).fetchall()
                )
                found.update(_marks(rows, len(key)))
                if len(rows) < limit:
                    break
                after = tuple(rows[-1][: len(key)])
        return found


def _column(connection: Connection, sql: str, values: Sequence[Any]) -> list[Any]:
    return [row[0] for row in connection.execute(sql, values).fetchall()]


def _delete(connection: Connection, run_ids: Sequence[str], rows_max: int) -> Slice:
    began, piece = time.perf_counter(), Slice()
    for run_id in run_ids:
        over = connection.execute(f"SELECT 1 FROM runs WHERE id = ? AND {ENDED}", (run_id,)).fetchone()
        if over is None:
            known = connection.execute("SELECT 1 FROM runs WHERE id = ?", (run_id,)).fetchone()
            (piece.deleted if known is None else piece.refused).append(run_id)
            continue
        piece.rows += _empty(connection, run_id, rows_max - piece.rows)
        if piece.rows >= rows_max:
            break
        piece.rows += connection.execute("DELETE FROM runs WHERE id = ?", (run_id,)).rowcount
        piece.deleted.append(run_id)
    piece.took_s = time.perf_counter() - began
    return piece


def _empty(connection: Connection, run_id: str, rows_max: int) -> int:
    """Delete what hangs on a run, until ``rows_max`` rows are gone; returns how many were."""
    rows = 0
    for table, number in OF_RUN.items():
        rows += connection.execute(
            f"DELETE FROM {table} WHERE run = ? AND {number} IN"
            f" (SELECT {number} FROM {table} WHERE run = ? ORDER BY {number} LIMIT ?)",
            (run_id, run_id, rows_max - rows),
        ).rowcount
        if rows >= rows_max:
            return rows
    for below in _column(connection, "SELECT id FROM runs WHERE root = ? LIMIT ?", (run_id, rows_max - rows)):
        rows += connection.execute("DELETE FROM events WHERE run = ?", (below,)).rowcount
        rows += connection.execute("DELETE FROM runs WHERE id = ?", (below,)).rowcount
        if rows >= rows_max:
            return rows
    jobs = _column(connection, "SELECT id FROM jobs WHERE run = ? LIMIT ?", (run_id, rows_max - rows))
    for job in jobs:
        for table, key in OF_JOB.items():
            rows += connection.execute(
                f"DELETE FROM {table} WHERE job = ? AND {key} IN"
                f" (SELECT {key} FROM {table} WHERE job = ? LIMIT ?)",
                (job, job, rows_max - rows),
            ).rowcount
            if rows >= rows_max:
                return rows
        rows += connection.execute("DELETE FROM jobs WHERE id = ?", (job,)).rowcount
        if rows >= rows_max:
            return rows
    return rows + connection.execute("DELETE FROM journals WHERE run = ?", (run_id,)).rowcount


def _delete_old(connection: Connection, table: str, before: float, rows_max: int) -> Slice:
    began = time.perf_counter()
    key, condition = BY_AGE[table]
    gone = connection.execute(
        f"DELETE FROM {table} WHERE ({key}) IN"
        f" (SELECT {key} FROM {table} WHERE at < ? AND {condition} ORDER BY at LIMIT ?)",
        (before, rows_max),
    )
    return Slice(gone.rowcount, took_s=time.perf_counter() - began)


def _last_deleted(connection: Connection, flow: str) -> str:
    """The last run of a flow that was deleted under this name and is still being removed; '' for none."""
    row = connection.execute("SELECT last_run FROM deletions WHERE flow = ?", (flow,)).fetchone()
    return "" if row is None else str(row[0])


def _count_after(connection: Connection, flow: str, after: str) -> tuple[int, str]:
    """How many of the next `COUNTED_MAX` runs of a flow there are, and the last of them."""
    counted, last = connection.execute(
        "SELECT count(*), max(id) FROM"
        " (SELECT id FROM runs WHERE flow = ? AND id > ? ORDER BY id LIMIT ?) AS counted",
        (flow, after, COUNTED_MAX),
    ).fetchone()
    return int(counted), str(last)


def _delete_flow(
    connection: Connection,
    flow: str,
    runs: int,
    now: float,
    forced: bool,
    project: str,
    expected: str | None,
    effects: Effects,
) -> int:
    row = connection.execute("SELECT present, project FROM flows WHERE name = ?", (flow,)).fetchone()
    if row is not None and row[0] and row[1] != project:
        raise Conflict(f"flow {flow!r} is part of project {row[1]!r}; take it out there first")
    after = _last_deleted(connection, flow)
    newest = connection.execute(
        "SELECT id FROM runs WHERE flow = ? AND id > ? ORDER BY id DESC LIMIT 1", (flow, after)
    ).fetchone()
    if row is None and newest is None:
        raise NotFound(f"there is no flow {flow!r}, and no run of one")
    under_way = sum(_count_in(connection, flow, state, after) for state in _UNDER_WAY)
    if under_way and not forced:
        said = f"{under_way}" if under_way < COUNTED_MAX else f"{COUNTED_MAX} or more"
        raise Conflict(f"{said} runs of flow {flow!r} have not ended; cancel them first")
    connection.execute("DELETE FROM flows WHERE name = ?", (flow,))
    if row is not None and row[1] == DECLARED:
        replace_services_of(connection, effects, flow, DECLARED, [], now)
        forget_schedules(connection, flow, DECLARED)
    forget_versions(connection, flow, expected)
    if newest is not None:
        connection.execute(
            "INSERT INTO deletions (flow, last_run, asked_at) VALUES (?, ?, ?)"
            " ON CONFLICT (flow) DO UPDATE SET last_run = excluded.last_run",
            (flow, newest[0], now),
        )
    return runs


def _count_in(connection: Connection, flow: str, state: str, after: str) -> int:
    counted = connection.execute(
        "SELECT count(*) FROM"
        " (SELECT id FROM runs WHERE flow = ? AND state = ? AND id > ? LIMIT ?) AS counted",
        (flow, state, after, COUNTED_MAX),
    ).fetchone()
    return int(counted[0])


def _doomed(connection: Connection, limit: int) -> list[str]:
    for flow, last in connection.execute("SELECT flow, last_run FROM deletions ORDER BY flow").fetchall():
        runs = _column(
            connection,
            f"SELECT id FROM runs WHERE flow = ? AND id <= ? AND {ENDED} ORDER BY id LIMIT ?",
            (flow, last, limit),
        )
        if runs:
            return runs
        connection.execute(  # one that is left, since a hook of it runs, stays hidden till it can go too
            "DELETE FROM deletions WHERE flow = ?"
            " AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.flow = deletions.flow"
            " AND runs.id <= deletions.last_run)",
            (flow,),
        )
    return []


def _page_of(
    table: str, key: tuple[str, ...], columns: str, after: tuple[Any, ...] | None
) -> tuple[str, tuple[Any, ...]]:
    """Rows of a table after a key. Text without a digest in it is left where it is."""
    marked = ", ".join(f"CASE WHEN {name} LIKE '%{MARK}%' THEN {name} END" for name in columns.split(", "))
    names = ", ".join(key)
    where = "" if after is None else f" WHERE ({names}) > ({', '.join('?' * len(key))})"
    return f"SELECT {names}, {marked} FROM {table}{where} ORDER BY {names} LIMIT ?", after or ()


def _marks(rows: Iterable[Sequence[Any]], start: int) -> Iterator[str]:
    for row in rows:
        for text in row[start:]:
            if text is not None:
                for piece in text.split(MARK)[1:]:
                    yield MARK + piece[:64]
