"""Calls that end as most do: begun and completed in one report, which is all there is of them.

Such ends are recorded together, with a statement for all of them. What is not so takes the way of `reported`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from farhand_worker.protocol import Artifact, Log, Metric, Progress, Result, Started

from ..errors import IllegalTransition
from ..lifecycle import JOB, TASK, advance
from ..model import Json
from .batch import STREAMING, Batch
from .changes import Changes, Effects, PlacedOutcome
from .guard import Connection
from .nested import open_ids
from .rows import Row, from_json, optional_json
from .run_blobs import digests_of, name_blobs
from .whole_ends import ATTEMPT, CODE, HANDED, Handed, WholeEnds, attempt_row

_STREAMED = frozenset({Log, Metric, Progress, Artifact})

_FIND = (
    f"SELECT {HANDED}, j.key, j.name, j.parent_job, j.nested, t.scope, t.place"
    " FROM jobs j JOIN task_runs t ON t.run = j.run AND t.key = j.key"
    " WHERE j.kind = 'call' AND j.state = 'leased' AND j.attempt = 1 AND t.state = 'queued'"
    " AND NOT EXISTS (SELECT 1 FROM recorded c WHERE c.job = j.id AND c.lease = j.lease AND c.source = ?)"
    " AND j.id IN"
)


_TASK = (
    "UPDATE task_runs SET state = 'completed', started_at = ?, ended_at = ?, attempts = 1, kept = 1,"
    " value = ?, error = NULL WHERE run = ? AND key = ? AND state = 'queued'"
)
_ALONE = (
    "UPDATE jobs SET state = 'ended', started_at = ?, lease = NULL, worker = NULL"
    " WHERE id = ? AND lease = ? AND worker = ? AND state = 'leased' AND kind = 'call' AND attempt = 1"
    " AND nested IS NULL AND parent_job IS NOT NULL"
    " AND EXISTS"
    " (SELECT 1 FROM task_runs t WHERE t.run = jobs.run AND t.key = jobs.key AND t.state = 'queued')"
    " AND NOT EXISTS (SELECT 1 FROM recorded c WHERE c.job = ? AND c.lease = ? AND c.source = ?)"
    f" RETURNING run, {CODE}, key, name, parent_job"
)
"""What `_FIND` finds is ended as it is found, where there is one of it and no more is to be known."""


def end_alone(
    connection: Connection, spool: tuple[str, int, str], events: Sequence[Any], worker: str
) -> Changes | None:
    """Record the end of a call that said nothing else; None, and nothing is written, if it is unlike most.

    ``spool`` is the job, its lease and the source.
    """
    job, lease, _ = spool
    start, end = events
    rows = connection.execute(_ALONE, (start.at, job, lease, worker, *spool)).fetchall()
    if not rows:
        return None
    advance(JOB, advance(JOB, "leased", "running"), "ended")
    advance(TASK, advance(TASK, "queued", "running"), "completed")
    ((run, *code, key, name, parent),) = rows
    at = float(max(end.at, start.at))
    told = connection.execute(
        f"{_TASK} RETURNING scope, place", (start.at, at, optional_json(end.value), run, key)
    ).fetchall()
    if len(told) != 1:
        raise IllegalTransition(f"call {key} of run {run} is no longer as it was read")
    connection.execute(ATTEMPT, attempt_row(Handed(lease, job, run, worker, *code), events, at))
    if digests := digests_of(end.value):
        name_blobs(connection, run, digests)
    ((scope, place),) = told
    outcome = _outcome(parent, key, name, scope, place, start.at, at, end.value)
    return Changes(released=((job, lease, worker),), outcomes=(outcome,), streams=(run,))


def _outcome(
    parent: str,
    key: str,
    name: str,
    scope: str,
    index: int | None,
    start: float,
    at: float,
    value: Json | None,
) -> PlacedOutcome:
    """What the parent of a call that has completed is told."""
    body: Json = {
        "key": key,
        "name": name,
        "state": "completed",
        "started_at": start,
        "ended_at": at,
        "scope": scope,
        "index": index,
        "attempts": 1,
        "kept": True,
        "value": value,
        "error": None,
    }
    return PlacedOutcome(parent, key, body)


def is_return(first: int, events: Sequence[Any]) -> bool:
    """Whether a report looks like that: all of a spool, from the start of user code to its result."""
    if first != 1 or type(events[0]) is not Started or type(events[-1]) is not Result:
        return False
    if events[-1].state != "completed":
        return False
    return all(type(event) in _STREAMED and event.nested is None for event in events[1:-1])


class Returns:
    """Records such ends. ``find`` says which of those that look like it are."""

    def __init__(self, connection: Connection, effects: Effects, now: float) -> None:
        self._connection = connection
        self._effects = effects
        self._now = now
        self._ends = WholeEnds(connection)
        self._tasks: list[tuple[Any, ...]] = []

    def find(self, jobs: Iterable[str], source: str) -> dict[str, Row]:
        """By job what has to be known of those that are first attempts of placed calls."""
        ids = tuple(dict.fromkeys(jobs))
        marks = ", ".join("?" * len(ids))
        rows = self._connection.execute(f"{_FIND} ({marks})", (source, *ids)).fetchall()
        return {row[1]: row for row in rows if row[10] is None or from_json(row[10]).get("key") != row[7]}

    def add(self, row: Row, events: Sequence[Any]) -> None:
        """One has ended."""
        handed = Handed(*row[:7])
        key, name, parent, nested, scope, place = row[7:]
        run = handed.run
        start, end = events[0], events[-1]
        if len(events) > 2:
            self._stream(run, events[1:-1], nested is not None)
        at = self._ends.add(handed, events)
        self._tasks.append((start.at, at, optional_json(end.value), run, key))
        effects = self._effects
        effects.released.append((handed.job, int(handed.lease), handed.worker))
        effects.streams.add(run)
        if digests := digests_of(end.value):
            name_blobs(self._connection, run, digests)
        if parent is not None:
            effects.outcomes.append(_outcome(parent, key, name, scope, place, start.at, at, end.value))

    def _stream(self, run: str, events: Sequence[Any], nested: bool) -> None:
        """What it said meanwhile; ``nested``: it belongs to a flow that was called inside of the run."""
        batch = Batch(self._connection, self._effects, run, self._now)
        for event in events:
            STREAMING[type(event)](batch, event)
        batch.flush()
        if nested:
            self._effects.streams.update(open_ids(self._connection, run))

    def flush(self) -> None:
        """Write what has gathered."""
        if not self._ends.flush():
            return
        advance(TASK, advance(TASK, "queued", "running"), "completed")
        told = self._connection.executemany(_TASK, self._tasks)
        if told.rowcount != len(self._tasks):
            raise IllegalTransition("calls that have ended are no longer as they were read")
        self._tasks = []
