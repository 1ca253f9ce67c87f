"""What ends with a run or a call: the calls below it, its tasks, and the flows that it had called."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import Conflict, NotFound
from ..lifecycle import JOB, RUN, advance, is_terminal
from ..model import SERVICE, Job, Json, Run
from . import nested
from .changes import Effects
from .guard import Connection
from .hooks import HOOK, queue_hooks, queue_hooks_of_called
from .leases import among_held
from .moves import LIVE, change_job, load_job, load_run, move_job, move_run
from .rows import JOBS, to_json

_ERRORS = {
    "cancelled": ("Cancelled", "the call was cancelled"),
    "timeout": ("TimedOut", "the call took longer than its timeout"),
    "silence": ("SilentTooLong", "the call was silent for longer than its silence_timeout"),
    "unplaceable": ("Unplaceable", "no worker can ever take the call"),
    "worker_lost": ("WorkerLost", "worker went away mid-call"),
}
"""Reason of a call's end → the exception its parent sees when user code raised none."""

_PLACERS_MAX = 100
"""Of so many jobs the calls are closed by one statement."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The final state of a run or a placed call."""

    state: str
    reason: str
    message: str
    at: float
    value: Json | None = None
    error: Json | None = None


def cancel_run(connection: Connection, effects: Effects, run_id: str, now: float) -> None:
    """Cancel a run: at once where nobody holds it, else by asking its engine. Asking again is harmless."""
    run = load_run(connection, run_id)
    if run.origin == SERVICE:
        raise NotFound(f"there is no run {run.id}")
    if is_terminal(RUN, run.state):
        raise Conflict(f"run {run.id} has ended already: it is {run.state}", state=run.state)
    if run.origin == "script":
        raise Conflict(f"run {run.id} is a script; stop it where it was started", state=run.state)
    if run.root is not None:
        raise Conflict(f"run {run.id} goes on inside of run {run.root}; cancel that one", state=run.state)
    row = connection.execute(
        f"SELECT {JOBS.columns} FROM jobs WHERE run = ? AND key = '' AND state <> 'ended'", (run.id,)
    ).fetchone()
    job = None if row is None else JOBS.load(row)
    if job is None or job.state not in LIVE:
        if job is not None:
            move_job(connection, job, "ended", cancelling=True)
            effects.dequeue(job.id)
        ended = move_run(
            connection, effects, run, "cancelled", "cancelled", "cancelled on request", now, ended_at=now
        )
        close_tasks(connection, run.id, "cancelled", now)
        close_calls(connection, effects, run.id, now)
        close_called(connection, effects, ended, now, now, job)
        if job is not None:
            queue_hooks(connection, effects, ended, job, now)
    else:
        effects.cancel[job.id] = change_job(connection, job, cancelling=True)
        if run.state == "cancelling":
            effects.runs[run.id] = run
        else:
            message = f"cancellation asked of {job.worker}"
            move_run(connection, effects, run, "cancelling", "cancel_requested", message, now)
        close_calls(connection, effects, run.id, now)


def close_calls(
    connection: Connection, effects: Effects, run_id: str, now: float, parent: str | None = None
) -> None:
    """End the open calls of a run, or of one job in it: queued ones at once, live ones by cancelling.

    Set by set, not call by call: a run may have thousands of them in the queue. Their parent ends too,
    so nobody waits for an outcome.
    """
    if parent is None:
        _close(connection, effects, f"kind <> '{HOOK}'", (run_id,), now)
        return
    placers = [parent]
    while placers:  # what calls placed themselves is closed after them
        some, placers = placers[:_PLACERS_MAX], placers[_PLACERS_MAX:]
        condition = f"parent_job IN ({', '.join('?' * len(some))})"
        placers += _close(connection, effects, condition, (run_id, *some), now)


def _close(
    connection: Connection, effects: Effects, condition: str, keys: tuple[str, ...], now: float
) -> list[str]:
    """Close such calls of a run; returns those that may have placed others, having been handed over."""
    advance(JOB, "queued", "ended")
    where = f"run = ? AND kind <> 'run' AND {condition}"
    live = connection.execute(
        among_held(
            f"UPDATE jobs {{}} SET cancelling = 1 WHERE {where}"
            f" AND state IN ('leased', 'running') RETURNING {JOBS.columns}"
        ),
        keys,
    ).fetchall()
    waiting = connection.execute(
        f"UPDATE jobs SET state = 'ended', cancelling = 1 WHERE {where}"
        " AND state IN ('queued', 'parked') RETURNING id, key, attempt, nested",
        keys,
    ).fetchall()
    error = to_json(call_error("cancelled", ""))
    connection.executemany(
        "UPDATE task_runs SET state = 'cancelled', ended_at = ?, kept = 0, error = ?"
        " WHERE run = ? AND key = ? AND state IN ('queued', 'running')",
        [(now, error, keys[0], call_key) for _, call_key, *_ in waiting],
    )
    for job_id, _, _, called in waiting:
        effects.dequeue(job_id)
        job = None if called is None else load_job(connection, job_id)
        if job is not None:
            follow_call(connection, effects, job, Outcome("cancelled", "", "", now), now)
    effects.cancel |= {job.id: job for job in map(JOBS.load, live)}
    return [row[0] for row in live] + [job_id for job_id, _, attempt, *_ in waiting if attempt]


def follow_call(connection: Connection, effects: Effects, job: Job, outcome: Outcome, now: float) -> None:
    """End the run of a placed flow with its job; one that was cancelled was so with its caller."""
    reason, message = outcome.reason, outcome.message
    if outcome.state == "cancelled":
        reason, message = nested.CALLER_ENDED, nested.cancelled_with(job.run)
    run = nested.follow(
        connection, effects, job, outcome.state, now, reason=reason, message=message,
        ended_at=outcome.at, result=outcome.value, error=outcome.error,
    )  # fmt: skip
    if run is not None:
        queue_hooks_of_called(connection, effects, run, job, now)


def close_called(
    connection: Connection, effects: Effects, run: Run, now: float, at: float, job: Job | None = None
) -> None:
    """End the flows that a run which has ended had called, but for those in the hands of other engines."""
    message = f"run {run.id}, which had called it, is {run.state}"
    for called in nested.close(connection, effects, run.id, left_behind(run.state), message, now, at):
        queue_hooks_of_called(connection, effects, called, job, now)


def left_behind(state: str) -> str:
    """What becomes of task runs that were under way when their run or call ended in ``state``."""
    return "crashed" if state == "crashed" else "cancelled"


def close_tasks(connection: Connection, run: str, state: str, at: float, job: str | None = None) -> None:
    """End what a run (or one job of it) left open. Placed calls end with jobs of their own."""
    whose, keys = ("", (run,)) if job is None else (" AND job = ?", (run, job))
    connection.execute(
        f"UPDATE task_runs SET state = ?, ended_at = ?, kept = 0 WHERE run = ?{whose}"
        " AND state IN ('queued', 'running') AND placed IS NULL",
        (state, at, *keys),
    )


def call_error(reason: str, message: str) -> Json:
    """The encoded error of a call that ended without raising one."""
    name, sentence = _ERRORS.get(reason, ("TaskFailed", "the call's engine died"))
    return {"type": name, "module": "farhand.errors", "message": message or sentence, "traceback": ""}
