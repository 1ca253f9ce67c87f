"""Jobs that are handed to a worker, with all that shows it: the run, or the call's task run, and its flow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import IllegalTransition
from ..model import SERVICE, Job, Run
from . import nested, service_jobs
from .changes import Effects, Leased
from .guard import Connection
from .moves import add_notes, load_run, move_job, move_run, moved_run, noted
from .rows import JOBS, RUNS
from .tasks import count_kept

HANDED = "handed to {}"
BEHIND = "handed to {}, behind another run there"
"""What is said of a run that waits on a slot behind its like."""

_QUEUED = f"SELECT r.retry_of, {JOBS.of('j')} FROM jobs j JOIN runs r ON r.id = j.run WHERE j.id IN "


def load_queued(connection: Connection, ids: Sequence[str]) -> dict[str, tuple[Job, bool]]:
    """Jobs by id, each with whether its run retries another; none for those that there are not."""
    if not ids:
        return {}
    rows = connection.execute(f"{_QUEUED}({', '.join('?' * len(ids))})", ids).fetchall()
    return {job.id: (job, row[0] is not None) for row in rows for job in [JOBS.load(row[1:])]}


def hand_over(connection: Connection, job: Job, columns: dict[str, Any], now: float) -> Run | None:
    """Write the lease of a job by itself; its run, where it is the run's own."""
    job = move_job(connection, job, "leased", **columns)
    if job.kind == SERVICE:
        service_jobs.handed_over(connection, job, job.worker or "", now)
        return None
    if job.kind == "run":
        return move_run(
            connection, Effects(), load_run(connection, job.run), "starting", "leased",
            HANDED.format(job.worker), now, worker=job.worker, attempt=job.attempt,
        )  # fmt: skip
    show_calls(connection, [job])
    follow_call(connection, job, now)
    return None


def hand_over_together(connection: Connection, jobs: Sequence[Job]) -> None:
    """Write the leases of queued jobs, which ``jobs`` have already."""
    if not jobs:
        return
    moved = connection.executemany(
        "UPDATE jobs SET state = 'leased', lease = ?, worker = ?, attempt = ?, started_at = NULL,"
        " leased_at = ?, checkout = ?, devices = ?, behind = ?"
        " WHERE id = ? AND state = 'queued' AND lease IS NULL",
        [
            (
                job.lease,
                job.worker,
                job.attempt,
                job.leased_at,
                job.checkout,
                JOBS.value("devices", job.devices),
                job.behind,
                job.id,
            )
            for job in jobs
        ],
    )
    if moved.rowcount != len(jobs):
        raise IllegalTransition("jobs that were to be handed over are no longer queued")


def show_calls(connection: Connection, jobs: Sequence[Job]) -> None:
    """The hand-off where people look: on the task runs."""
    if jobs:
        connection.executemany(
            "UPDATE task_runs SET worker = ?, attempts = ? WHERE run = ? AND key = ?",
            [(job.worker, job.attempt, job.run, job.key) for job in jobs],
        )


def take_runs(connection: Connection, jobs: Sequence[Job], now: float) -> dict[str, Run]:
    """By job, the runs that jobs are, as those that begin on a worker."""
    if not jobs:
        return {}
    marks = ", ".join("?" * len(jobs))
    sql = f"SELECT {RUNS.columns} FROM runs WHERE id IN ({marks})"
    found = {run.id: run for run in map(RUNS.load, connection.execute(sql, [job.run for job in jobs]))}
    taken = {
        job.id: moved_run(
            found[job.run], "starting", "leased", _told(job), worker=job.worker, attempt=job.attempt,
        )
        for job in jobs
    }  # fmt: skip
    moved = connection.executemany(
        "UPDATE runs SET state = ?, reason = ?, message = ?, worker = ?, attempt = ?"
        " WHERE id = ? AND state = 'queued'",
        [(run.state, run.reason, run.message, run.worker, run.attempt, run.id) for run in taken.values()],
    )
    if moved.rowcount != len(taken):
        raise IllegalTransition("runs that were to be handed over are no longer queued")
    add_notes(connection, [noted(run, now) for run in taken.values()])
    return taken


def _told(job: Job) -> str:
    return (HANDED if job.behind is None else BEHIND).format(job.worker)


def follow_call(connection: Connection, job: Job, now: float) -> None:
    """The run of a flow that a call is, where it is one, goes with it."""
    nested.follow(
        connection, Effects(), job, "starting", now,
        reason="leased", message=HANDED.format(job.worker), worker=job.worker, attempt=job.attempt,
    )  # fmt: skip


def leased(connection: Connection, job: Job, run: Run | None, retrying: bool) -> Leased:
    """A job that was handed over, and what it goes on from. ``retrying``: its run retries another."""
    again = job.attempt > 1
    kept = count_kept(connection, job) if again or retrying else 0
    return Leased(job, run, kept, nested.open_keys(connection, job.run) if again else {})
