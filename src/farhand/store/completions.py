"""Runs that end as most do: begun and completed in one report, which is all there is of them.

Such ends are recorded together, with a statement for all of them, as those of placed calls are (`returns`).
A run that retries another, has hooks, or is being cancelled takes the way of `reported`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import IllegalTransition
from ..lifecycle import RUN, advance
from ..model import Run
from .batch import STREAMING, Batch
from .changes import Effects
from .guard import Connection
from .moves import Note, add_notes, moved_run, noted
from .rows import JOBS, RUNS, Row, optional_json
from .run_blobs import digests_of, name_blobs
from .whole_ends import HANDED, Handed, WholeEnds

_FIND = (
    f"SELECT {HANDED}, j.settings, {RUNS.of('r')}"
    " FROM jobs j JOIN runs r ON r.id = j.run"
    " WHERE j.kind = 'run' AND j.state = 'leased' AND j.attempt = 1"
    " AND r.state = 'starting' AND r.started_at IS NULL AND r.retry_of IS NULL"
    " AND NOT EXISTS (SELECT 1 FROM recorded c WHERE c.job = j.id AND c.lease = j.lease AND c.source = ?)"
    " AND j.id IN"
)
_NOTES_MAX = 100
"""So many rows of the event log are written by one statement."""


class Completions:
    """Records such ends. ``find`` says which of those that look like it are."""

    def __init__(self, connection: Connection, effects: Effects, now: float) -> None:
        self._connection = connection
        self._effects = effects
        self._now = now
        self._ends = WholeEnds(connection)
        self._runs: list[tuple[Any, ...]] = []
        self._notes: list[Note] = []

    def find(self, jobs: Iterable[str], source: str) -> dict[str, Row]:
        """By job what has to be known of those that are first attempts of runs, if no hooks follow."""
        ids = tuple(dict.fromkeys(jobs))
        marks = ", ".join("?" * len(ids))
        rows = self._connection.execute(f"{_FIND} ({marks})", (source, *ids)).fetchall()
        return {row[1]: row for row in rows if not JOBS.read("settings", row[7]).hooks}

    def add(self, row: Row, events: Sequence[Any]) -> None:
        """One has ended."""
        handed = Handed(*row[:7])
        run, start, end = RUNS.load(row[8:]), events[0], events[-1]
        if len(events) > 2:
            self._stream(run.id, events[1:-1])
        at, reason = self._ends.add(handed, events), end.reason or end.state
        name = run.name if start.name is None else start.name
        self._move(
            run, handed.worker, reason, end, name=name, host=start.host, started_at=start.at, ended_at=at
        )
        self._effects.released.append((handed.job, int(handed.lease), handed.worker))
        if digests := digests_of(end.value):
            name_blobs(self._connection, run.id, digests)

    def _move(self, run: Run, worker: str, reason: str, end: Any, **columns: Any) -> None:
        """The run is running, and in the next moment completed."""
        running = moved_run(run, "running", "started", f"running on {worker}", **columns)
        after = moved_run(running, "completed", reason, end.message, result=end.value, error=None)
        self._notes += noted(running, self._now), noted(after, self._now)
        self._runs.append(
            (
                reason, after.message, after.name, after.started_at, after.host, after.ended_at,
                optional_json(end.value), run.id,
            )
        )  # fmt: skip
        self._effects.runs[run.id] = after

    def _stream(self, run: str, events: Sequence[Any]) -> None:
        """What it said meanwhile."""
        batch = Batch(self._connection, self._effects, run, self._now)
        for event in events:
            STREAMING[type(event)](batch, event)
        batch.flush()
        self._effects.streams.add(run)

    def flush(self) -> None:
        """Write what has gathered."""
        if not self._ends.flush():
            return
        advance(RUN, advance(RUN, "starting", "running"), "completed")
        told = self._connection.executemany(
            "UPDATE runs SET state = 'completed', reason = ?, message = ?, name = ?, started_at = ?,"
            " host = ?, ended_at = ?, result = ?, error = NULL WHERE id = ? AND state = 'starting'",
            self._runs,
        )
        if told.rowcount != len(self._runs):
            raise IllegalTransition("runs that have ended are no longer as they were read")
        for first in range(0, len(self._notes), _NOTES_MAX):
            add_notes(self._connection, self._notes[first : first + _NOTES_MAX])
        self._runs, self._notes = [], []
