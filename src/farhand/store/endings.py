"""How attempts and jobs end, and the runs and calls that they are.

`end_attempt` is the only way out of a lease: it asks `lifecycle.conclude` what the ending means, then
either queues the job again or ends it, its run or call, and every call that was placed under it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from ..lifecycle import RETURNED, Ending, Standing, Verdict, conclude
from ..model import SERVICE, Job, Json, Run
from . import nested, service_jobs
from .attempts import change_attempt
from .changes import Effects, PlacedOutcome
from .closing import Outcome, call_error, close_called, close_calls, close_tasks, follow_call, left_behind
from .guard import Connection
from .hooks import HOOK, queue_hooks, queue_hooks_of_called
from .leases import among_held
from .machines import machines_lost
from .moves import (
    Unwritten,
    load_run,
    move_call,
    move_job,
    move_run,
    put_job,
)
from .rows import optional_json
from .tasks import made_by, outcome_body

_OPEN = (
    "SELECT EXISTS (SELECT 1 FROM task_runs WHERE run = ?{whose} AND state IN ('queued', 'running')"
    " AND placed IS NULL)"
    " OR EXISTS (SELECT 1 FROM jobs WHERE run = ?{by} AND kind <> 'run' AND state IN ('queued', 'parked'))"
    " OR EXISTS (SELECT 1 FROM jobs {{}} WHERE run = ?{by} AND kind <> 'run'"
    " AND state IN ('leased', 'running'))"
    " OR EXISTS (SELECT 1 FROM runs WHERE root = ? AND ended_at IS NULL)"
)
_OPEN_CALLS = among_held(_OPEN.format(whose="", by=""))
_OPEN_BELOW = among_held(_OPEN.format(whose=" AND job = ?", by=" AND parent_job = ?"))


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
    outcome = Outcome(
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
    outcome = Outcome("failed", reason, message, now, None, error)
    _FINISH[job.kind](connection, effects, job, outcome, end, now)


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
    """Queue a job that was given back before it began: nobody has had it, so that was no attempt."""
    effects.release(job)
    connection.execute("DELETE FROM attempts WHERE lease = ?", (job.lease,))
    before = job.attempt - 1
    effects.enqueued[job.id] = move_job(
        connection, job, "queued", lease=None, worker=None, behind=None, devices=(), attempt=before
    )
    if job.kind == "run":
        run = load_run(connection, job.run)
        move_run(
            connection, effects, run, "queued", verdict.reason, verdict.message, now,
            worker=None, attempt=before,
        )  # fmt: skip
        return
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
        its, keys = made_by(job.id, job.run)
        connection.execute(
            f"UPDATE task_runs SET kept = 0 WHERE {its} AND state IN ('failed', 'crashed', 'cancelled')", keys
        )


def _finish_run(
    connection: Connection, effects: Effects, job: Job, outcome: Outcome, end: End, now: float
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
    row = connection.execute(_OPEN_CALLS, (run, run, run, run)).fetchone()
    return bool(row[0])


def _finish_call(
    connection: Connection, effects: Effects, job: Job, outcome: Outcome, end: End, now: float
) -> None:
    below = not end.alone and _has_open_below(connection, job)
    if below:
        close_calls(connection, effects, job.run, now, job.id)
        close_tasks(connection, job.run, left_behind(outcome.state), outcome.at, job.id)
    follow_call(connection, effects, job, outcome, now)
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
    row = connection.execute(_OPEN_BELOW, (*(job.run, job.id) * 3, job.run)).fetchone()
    return bool(row[0])


def _close_called_by(
    connection: Connection, effects: Effects, job: Job, outcome: Outcome, now: float
) -> None:
    """End the flows that a call had called."""
    state = left_behind(outcome.state)
    message = f"the call of {job.name}, which had called it, is {outcome.state}"
    for called in nested.close(connection, effects, job.run, state, message, now, outcome.at, job.id):
        queue_hooks_of_called(connection, effects, called, job, now)


def _finish_service(
    connection: Connection, effects: Effects, job: Job, outcome: Outcome, _end: End, now: float
) -> None:
    service_jobs.give_up(connection, effects, job, outcome.reason, outcome.message, now)


_FINISH = {"run": _finish_run, "call": _finish_call, HOOK: _finish_call, SERVICE: _finish_service}
"""Kind of job → what ends with it."""


def _end_job(connection: Connection, job: Job, verdict: Verdict, stored: Job | None) -> None:
    put_job(
        connection,
        job,
        "ended",
        stored,
        lease=None,
        worker=None,
        retries_used=verdict.retries_used,
        crashes=verdict.crashes,
    )
