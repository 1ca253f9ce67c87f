"""How attempts, jobs and runs end, and what ends with them.

`end_attempt` is the only way out of a lease: it asks `lifecycle.conclude` what the ending means, then
either queues the job again or ends it, its run or call, and every call that was placed under it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from ..errors import Conflict, NotFound
from ..lifecycle import JOB, RETURNED, RUN, Ending, Standing, Verdict, advance, conclude, is_terminal
from ..model import SERVICE, Job, Json, Run
from . import nested, service_jobs
from .changes import Effects, PlacedOutcome
from .guard import Connection
from .hooks import HOOK, queue_hooks, queue_hooks_of_called
from .machines import machines_lost
from .moves import (
    LIVE,
    Unwritten,
    change_attempt,
    change_job,
    load_job,
    load_run,
    move_call,
    move_job,
    move_run,
)
from .rows import JOBS, optional_json, to_json
from .tasks import outcome_body

_ERRORS = {
    "cancelled": ("Cancelled", "the call was cancelled"),
    "timeout": ("TimedOut", "the call took longer than its timeout"),
    "silence": ("SilentTooLong", "the call was silent for longer than its silence_timeout"),
    "unplaceable": ("Unplaceable", "no worker can ever take the call"),
    "worker_lost": ("WorkerLost", "worker went away mid-call"),
}
"""Reason of a call's end → the exception its parent sees when user code raised none."""


@dataclass(frozen=True, slots=True)
class End:
    """How an attempt ended, with what user code left, and when by the clock of whoever saw it.

    ``start`` is the attempt's start, if that is to be written with its end; ``alone``: nothing was called.
    ``start`` is the attempt's start, if that is to be written with its end; ``tail`` the end of a service's
    output.
    """

    ending: Ending
    at: float
    value: Json | None = None
    error: Json | None = None
    start: Unwritten | None = None
    alone: bool = False
    tail: str = ""

    @property
    def job_in_store(self) -> Job | None:
        """The job as it is stored, if not as it is."""
        return None if self.start is None else self.start.job_in_store

    def run_of(self, connection: Connection, job: Job) -> Run:
        """The run of ``job`` as it is; `start` says whether it is stored so."""
        if self.start is not None and self.start.run is not None:
            return self.start.run
        return load_run(connection, job.run)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The final state of a run or a placed call."""

    state: str
    reason: str
    message: str
    at: float
    value: Json | None = None
    error: Json | None = None


def end_attempt(connection: Connection, effects: Effects, job: Job, end: End, now: float) -> None:
    """End the job's current lease."""
    if job.kind == SERVICE:
        service_jobs.end_attempt(connection, effects, job, end.ending, end.at, end.tail, now)
        return
    ending, at = end.ending, max(end.at, job.started_at or 0.0)
    lost = machines_lost(connection, job) if ending.state == "lost" else None
    verdict = conclude(_standing(job, lost), ending)
    if ending.state == RETURNED and verdict.requeued:
        _take_back(connection, effects, job, verdict, now)
        return
    columns: Json = {} if end.start is None else end.start.attempt
    columns = columns | {"ended_at": at, "outcome": ending.state, "reason": ending.reason or ending.state}
    change_attempt(connection, job, **columns, message=ending.message)
    effects.release(job)
    if verdict.requeued:
        _requeue(connection, effects, job, verdict, end, now)
        return
    completed = verdict.state == "completed"
    outcome = _Outcome(
        verdict.state,
        verdict.reason,
        verdict.message,
        at,
        end.value if completed else None,
        None if completed else end.error,
    )
    _end_job(connection, job, verdict, end.job_in_store)
    _FINISH[job.kind](connection, effects, job, outcome, end, now)


def fail_queued(
    connection: Connection,
    effects: Effects,
    job: Job,
    reason: str,
    message: str,
    error: Json | None,
    now: float,
) -> None:
    """Fail a job that waits in the queue and that no worker is left for."""
    effects.dequeue(job.id)
    move_job(connection, job, "ended")
    end = End(Ending("failed", reason, message), now, None, error)
    outcome = _Outcome("failed", reason, message, now, None, error)
    _FINISH[job.kind](connection, effects, job, outcome, end, now)


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
    advance(JOB, "queued", "ended")
    calls = f"run = ? AND key <> '' AND kind <> '{HOOK}'"
    where, key = (calls, run_id) if parent is None else ("parent_job = ?", parent)
    live = connection.execute(
        f"UPDATE jobs SET cancelling = 1 WHERE {where} AND state <> 'ended'"
        f" AND state IN ('leased', 'running') RETURNING {JOBS.columns}",
        (key,),
    ).fetchall()
    waiting = connection.execute(
        f"UPDATE jobs SET state = 'ended', cancelling = 1 WHERE {where} AND state <> 'ended'"
        " AND state NOT IN ('leased', 'running') RETURNING id, key, attempt, nested",
        (key,),
    ).fetchall()
    error = to_json(call_error("cancelled", ""))
    connection.executemany(
        "UPDATE task_runs SET state = 'cancelled', ended_at = ?, kept = 0, error = ?"
        " WHERE run = ? AND key = ? AND state IN ('queued', 'running')",
        [(now, error, run_id, call_key) for _, call_key, *_ in waiting],
    )
    for job_id, _, _, called in waiting:
        effects.dequeue(job_id)
        job = None if called is None else load_job(connection, job_id)
        if job is not None:
            _follow(connection, effects, job, _Outcome("cancelled", "", "", now), now)
    effects.cancel |= {job.id: job for job in map(JOBS.load, live)}
    if parent is not None:  # what calls placed themselves; one never handed over has placed nothing
        placers = [row[0] for row in live] + [job_id for job_id, _, attempt, *_ in waiting if attempt]
        for placer in placers:
            close_calls(connection, effects, run_id, now, placer)


def _follow(connection: Connection, effects: Effects, job: Job, outcome: _Outcome, now: float) -> None:
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


def _standing(job: Job, machines_lost: int | None) -> Standing:
    return Standing(
        retries=job.settings.retries,
        retries_used=job.retries_used,
        retry_delay=job.settings.retry_delay,
        draw=random.random(),
        crash_retries=job.settings.crash_retries,
        crashes=job.crashes,
        handoffs_failed=job.handoffs_failed,
        started=job.state == "running",
        cancelling=job.cancelling,
        machines_lost=machines_lost,
    )


def _requeue(
    connection: Connection, effects: Effects, job: Job, verdict: Verdict, end: End, now: float
) -> None:
    """Queue the job again, as old as it was."""
    paid = verdict.retries_used > job.retries_used
    queued = move_job(
        connection,
        job,
        "queued",
        end.job_in_store,
        lease=None,
        worker=None,
        last_worker=job.worker if verdict.handoffs_failed == job.handoffs_failed else None,
        queued_at=now,
        devices=(),
        behind=None,
        blocked="",
        block=0,
        started_at=None,
        not_before=now + verdict.delay_s if verdict.delay_s else 0.0,
        retries_used=verdict.retries_used,
        crashes=verdict.crashes,
        handoffs_failed=verdict.handoffs_failed,
    )
    effects.enqueued[job.id] = queued
    _reopen_tasks(connection, job, forget_failures=paid)
    nested.wait(connection, effects, job, verdict.reason, verdict.message, now)
    if job.kind == "run":
        move_run(
            connection, effects, end.run_of(connection, job), "queued", verdict.reason, verdict.message, now,
            end.start, worker=None, progress=None,
        )  # fmt: skip
    else:
        move_call(connection, job, "queued", worker=None)
        nested.follow(
            connection, effects, job, "queued", now,
            reason=verdict.reason, message=verdict.message, worker=None, progress=None,
        )  # fmt: skip
        effects.streams.add(job.run)


def _take_back(connection: Connection, effects: Effects, job: Job, verdict: Verdict, now: float) -> None:
    """Queue a call that was given back before it began: nobody has had it, so that was no attempt."""
    effects.release(job)
    connection.execute("DELETE FROM attempts WHERE lease = ?", (job.lease,))
    before = job.attempt - 1
    effects.enqueued[job.id] = move_job(
        connection, job, "queued", lease=None, worker=None, behind=None, devices=(), attempt=before
    )
    move_call(connection, job, "queued", worker=None, attempts=before)
    nested.follow(
        connection, effects, job, "queued", now,
        reason=verdict.reason, message=verdict.message, worker=None, attempt=before,
    )  # fmt: skip
    effects.streams.add(job.run)


def _reopen_tasks(connection: Connection, job: Job, forget_failures: bool) -> None:
    """The next attempt makes the interrupted calls again; a paid retry makes the failed ones again too."""
    connection.execute(
        "UPDATE task_runs SET state = 'queued', progress = NULL WHERE run = ? AND job = ?"
        " AND state IN ('queued', 'running') AND placed IS NULL",
        (job.run, job.id),
    )
    if forget_failures:
        connection.execute(
            "UPDATE task_runs SET kept = 0 WHERE job = ? AND state IN ('failed', 'crashed', 'cancelled')",
            (job.id,),
        )


def _finish_run(
    connection: Connection, effects: Effects, job: Job, outcome: _Outcome, end: End, now: float
) -> None:
    run = end.run_of(connection, job)
    ended = move_run(
        connection, effects, run, outcome.state, outcome.reason, outcome.message, now, end.start,
        ended_at=outcome.at, result=outcome.value, error=outcome.error,
    )  # fmt: skip
    if not end.alone and _has_open_calls(connection, job.run):
        close_calls(connection, effects, job.run, now)
        close_tasks(connection, job.run, left_behind(outcome.state), outcome.at)
        close_called(connection, effects, ended, now, outcome.at, job)
    queue_hooks(connection, effects, ended, job, now)


def _has_open_calls(connection: Connection, run: str) -> bool:
    """Whether anything that the run called is under way, in its engine or elsewhere."""
    row = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM jobs WHERE run = ? AND key <> '' AND state <> 'ended')"
        " OR EXISTS (SELECT 1 FROM task_runs WHERE run = ? AND state IN ('queued', 'running'))"
        " OR EXISTS (SELECT 1 FROM runs WHERE root = ? AND ended_at IS NULL)",
        (run, run, run),
    ).fetchone()
    return bool(row[0])


def _finish_call(
    connection: Connection, effects: Effects, job: Job, outcome: _Outcome, end: End, now: float
) -> None:
    below = not end.alone and _has_open_below(connection, job)
    if below:
        close_calls(connection, effects, job.run, now, job.id)
        close_tasks(connection, job.run, left_behind(outcome.state), outcome.at, job.id)
    _follow(connection, effects, job, outcome, now)
    if below:
        _close_called_by(connection, effects, job, outcome, now)
    error = outcome.error
    if outcome.state != "completed" and error is None:
        error = call_error(outcome.reason, outcome.message)
    ended = move_call(
        connection,
        job,
        outcome.state,
        **({} if end.start is None else {"started_at": job.started_at}),
        ended_at=outcome.at,
        attempts=job.attempt,
        kept=int(outcome.state != "cancelled" and job.kind != HOOK),
        value=optional_json(outcome.value),
        error=optional_json(error),
    )
    effects.streams.add(job.run)
    if ended is not None and job.parent_job is not None:
        effects.outcomes.append(PlacedOutcome(job.parent_job, job.key, outcome_body(ended)))


def _has_open_below(connection: Connection, job: Job) -> bool:
    """Whether anything that a call had called, or may have, is under way; for most, one question says no."""
    row = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM jobs WHERE parent_job = ? AND state <> 'ended')"
        " OR EXISTS (SELECT 1 FROM task_runs WHERE run = ? AND job = ? AND state IN ('queued', 'running')"
        " AND placed IS NULL)"
        " OR EXISTS (SELECT 1 FROM runs WHERE root = ? AND ended_at IS NULL)",
        (job.id, job.run, job.id, job.run),
    ).fetchone()
    return bool(row[0])


def _close_called_by(
    connection: Connection, effects: Effects, job: Job, outcome: _Outcome, now: float
) -> None:
    """End the flows that a call had called."""
    state = left_behind(outcome.state)
    message = f"the call of {job.name}, which had called it, is {outcome.state}"
    for called in nested.close(connection, effects, job.run, state, message, now, outcome.at, job.id):
        queue_hooks_of_called(connection, effects, called, job, now)


def _finish_service(
    connection: Connection, effects: Effects, job: Job, outcome: _Outcome, _end: End, now: float
) -> None:
    service_jobs.give_up(connection, effects, job, outcome.reason, outcome.message, now)


_FINISH = {"run": _finish_run, "call": _finish_call, HOOK: _finish_call, SERVICE: _finish_service}
"""Kind of job → what ends with it."""


def _end_job(connection: Connection, job: Job, verdict: Verdict, stored: Job | None) -> None:
    move_job(
        connection,
        job,
        "ended",
        stored,
        lease=None,
        worker=None,
        retries_used=verdict.retries_used,
        crashes=verdict.crashes,
    )


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
