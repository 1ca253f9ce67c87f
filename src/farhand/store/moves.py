"""The only places where a run, a job or a task run changes state, and the event rows that say so.

Each move asks `lifecycle.advance`, then writes with a compare-and-set on the state (and, for a job, the
lease) it was read in; the row count decides. Who loses gets `IllegalTransition`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import IllegalTransition, NotFound
from ..lifecycle import JOB, RUN, TASK, advance, may_advance
from ..model import Job, Json, Run, TaskRun
from .changes import Effects
from .guard import Connection
from .rows import JOBS, RUNS, TASK_RUNS, to_json

_OPEN = ("queued", "running")
LIVE = ("leased", "running")
"""A job in one of these states has a lease that somebody may report under."""


def holds(job: Job, lease: int) -> bool:
    """Whether reports about the job are believed under this lease."""
    return job.state in LIVE and job.lease == lease


def load_run(connection: Connection, run_id: str) -> Run:
    """The run; raises `NotFound`."""
    row = connection.execute(f"SELECT {RUNS.columns} FROM runs WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        raise NotFound(f"there is no run {run_id}")
    return RUNS.load(row)


def load_job(connection: Connection, job_id: str) -> Job | None:
    """The job, or None."""
    row = connection.execute(f"SELECT {JOBS.columns} FROM jobs WHERE id = ?", (job_id,)).fetchone()
    return None if row is None else JOBS.load(row)


Note = tuple[float, str, str, str | None, str | None, str]
"""A row of the event log: at, kind, message, run, worker, details as JSON."""


@dataclass(frozen=True, slots=True)
class Unwritten:
    """A start that is written together with the end it was reported with: what the store has until then.

    ``attempt`` are columns of the attempt; ``run`` is the run as it has been moved, for a run's own job,
    and ``note`` the event row of that.
    """

    job_in_store: Job
    attempt: dict[str, Any]
    run: Run | None = None
    run_in_store: Run | None = None
    note: Note | None = None


def move_run(
    connection: Connection,
    effects: Effects,
    run: Run,
    to: str,
    reason: str,
    message: str,
    now: float,
    start: Unwritten | None = None,
    **columns: Any,
) -> Run:
    """The run in state ``to``, with its event row. ``start``: what led to ``run``, if that is not written."""
    stored, notes = run, list[Note]()
    if start is not None and start.run_in_store is not None and start.note is not None:
        stored = start.run_in_store
        notes.append(start.note)
    after = moved_run(run, to, reason, message, **columns)
    add_notes(connection, [*notes, noted(after, now)])
    columns |= {"state": to, "reason": reason, "message": message}
    names, values = RUNS.assignments(RUNS.changes(stored, run) | columns)
    moved = connection.execute(
        f"UPDATE runs SET {names} WHERE id = ? AND state = ?", (*values, run.id, stored.state)
    )
    if moved.rowcount != 1:
        raise IllegalTransition(f"run {run.id} is no longer {stored.state}", state=stored.state, to=to)
    effects.runs[run.id] = after
    return after


def rename_run(connection: Connection, run: Run, name: str) -> Run:
    """The run under the name that its parameters give it; its state is none of this."""
    connection.execute("UPDATE runs SET name = ? WHERE id = ?", (name, run.id))
    return RUNS.changed(run, {"name": name})


def moved_run(run: Run, to: str, reason: str, message: str, **columns: Any) -> Run:
    """The run in state ``to``, of which nothing is written yet."""
    advance(RUN, run.state, to)
    return RUNS.changed(run, {"state": to, "reason": reason, "message": message, **columns})


def noted(run: Run, now: float, details: Json | None = None) -> Note:
    """The event row of a run's state."""
    told = to_json({"reason": run.reason, **(details or {})})
    return now, f"run.{run.state}", run.message or run.reason, run.id, run.worker, told


def note_run(connection: Connection, run: Run, now: float, details: Json | None = None) -> None:
    """Write the event row of a run's state."""
    add_notes(connection, [noted(run, now, details)])


def add_event(
    connection: Connection,
    at: float,
    kind: str,
    message: str,
    run: str | None = None,
    worker: str | None = None,
    details: Json | None = None,
) -> None:
    """One entry of the event log."""
    add_notes(connection, [(at, kind, message, run, worker, to_json(details or {}))])


def add_notes(connection: Connection, notes: Sequence[Note]) -> None:
    """A few entries of the event log, in their order."""
    connection.execute(
        "INSERT INTO events (at, kind, message, run, worker, details) VALUES "
        + ", ".join(["(?, ?, ?, ?, ?, ?)"] * len(notes)),
        [value for note in notes for value in note],
    )


def move_job(connection: Connection, job: Job, to: str, since: Job | None = None, **columns: Any) -> Job:
    """The job in state ``to``; what is stored, ``since`` or itself, must still be as it was read."""
    put_job(connection, job, to, since, **columns)
    return JOBS.changed(job, {**columns, "state": to})


def put_job(connection: Connection, job: Job, to: str, since: Job | None = None, **columns: Any) -> None:
    """As `move_job`, for whoever has no use for the record."""
    advance(JOB, job.state, to)
    columns["state"] = to
    before = since or job
    _write_job(connection, before, JOBS.changes(before, job) | columns)


def change_job(connection: Connection, job: Job, **columns: Any) -> Job:
    """The job with other columns, in the state and under the lease it was read with."""
    _write_job(connection, job, columns)
    return JOBS.changed(job, columns)


def _write_job(connection: Connection, stored: Job, columns: dict[str, Any]) -> None:
    names, values = JOBS.assignments(columns)
    moved = connection.execute(
        f"UPDATE jobs SET {names} WHERE id = ? AND state = ? AND coalesce(lease, 0) = ?",
        (*values, stored.id, stored.state, stored.lease or 0),
    )
    if moved.rowcount != 1:
        raise IllegalTransition(f"job {stored.id} is no longer {stored.state} under lease {stored.lease}")


def move_call(connection: Connection, job: Job, to: str, **columns: Any) -> TaskRun | None:
    """The task run of a placed call, now in state ``to``; None when it has ended already."""
    columns["state"] = to
    names = ", ".join(f"{name} = ?" for name in columns)
    rows = connection.execute(
        f"UPDATE task_runs SET {names} WHERE run = ? AND key = ? AND state IN ({_open_before(to)})"
        f" RETURNING {TASK_RUNS.columns}",
        (*columns.values(), job.run, job.key),
    ).fetchall()
    return TASK_RUNS.load(rows[0]) if rows else None


def _open_before(to: str) -> str:
    """The states of an open task run that ``to`` may follow, for SQL."""
    return ", ".join(f"'{state}'" for state in _OPEN if state == to or may_advance(TASK, state, to))
