"""The jobs under which a service runs: how one begins and ends, and what becomes of the service meanwhile.

A service has one open job while it is to run. Each start of its process is an attempt of that job; one that
ends by itself is queued again, after a while, until it is given up. The jobs and lines of a service belong to
a row of `runs` that is no run, see `anchor_of`.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from farhand_worker.protocol import ProtocolViolation, ServiceState, Started

from ..errors import UnknownFlavor
from ..lifecycle import Ending, ServiceStanding, conclude_service
from ..model import SERVICE, Job, JobSettings, Json, Run, Service
from ..sdk.ids import new_id
from .attempts import change_attempt
from .changes import Effects
from .flavors import with_flavor
from .guard import Connection
from .moves import LIVE, add_event, change_job, load_job, move_job
from .rows import JOBS, RUNS
from .service_moves import load_service, move_service, note_service

LINES_MAX = 50_000
"""So many lines of a service are kept."""

JOBS_MAX = 20
"""So many of its ended jobs, and attempts of the open one, are kept with what belongs to them."""

MESSAGE_CHARS_MAX = 2000
_REASONS = frozenset(["", "starting", "health_timeout", "health_refused", "health_status", "port_taken"])


def anchor_of(name: str) -> str:
    """The id of the row in `runs` that a service's jobs and lines belong to."""
    return f"{SERVICE}:{name}"


def begin(connection: Connection, effects: Effects, service: Service, now: float) -> None:
    """Queue a new job for a service that has none."""
    _anchor(connection, service, now)
    _forget_old(connection, service)
    try:
        ask = with_flavor(connection, replace(service.ask, slots=0))
    except UnknownFlavor as error:
        service = move_service(connection, effects, service, "degraded", "starting", "is to be started", now)
        move_service(connection, effects, service, "down", "unknown_flavor", str(error), now, job=None)
        return
    job = Job(
        id=new_id(now),
        run=anchor_of(service.name),
        kind=SERVICE,
        state="queued",
        flow=service.flows[0] if service.flows else service.name,
        entry="",
        args=_arguments(service),
        bundle=service.bundle,
        ask=ask,
        settings=JobSettings(secrets=service.secrets),
        age_at=now,
        created_at=now,
        name=service.name,
        queued_at=now,
        fingerprint=service.fingerprint,
        git=service.git,
    )
    connection.execute(JOBS.insert, JOBS.dump(job))
    effects.enqueued[job.id] = job
    move_service(
        connection, effects, service, "degraded", "starting", "waits for a worker", now,
        job=job.id, worker=None, port=None, healthy_at=None, starts=0, restarts=0,
    )  # fmt: skip


def _arguments(service: Service) -> Json:
    return {"name": service.name, **msgspec.to_builtins(service.spec)}


def end_job(connection: Connection, effects: Effects, service: Service, now: float) -> None:
    """End what a service runs as: at once where nobody holds it, else by asking its agent."""
    job = open_job(connection, service)
    if job is not None and job.state in LIVE:
        effects.cancel[job.id] = change_job(connection, job, cancelling=True)
        note_service(connection, effects, service, service.state, service.reason, "is being stopped", now)
        return
    if job is not None:
        move_job(connection, job, "ended", cancelling=True)
        effects.dequeue(job.id)
    if service.state != "stopped":
        move_service(
            connection, effects, service, "stopped", "stopped", "the service was stopped", now,
            job=None, worker=None, port=None,
        )  # fmt: skip


def open_job(connection: Connection, service: Service) -> Job | None:
    """The job that it runs as, or is to, if there is one."""
    job = None if service.job is None else load_job(connection, service.job)
    return None if job is None or job.state == "ended" else job


def _forget_old(connection: Connection, service: Service) -> None:
    """Of the jobs that have ended only the latest are kept."""
    old = (
        "SELECT id FROM jobs WHERE run = ? AND state = 'ended' ORDER BY created_at DESC"
        f" LIMIT 1000 OFFSET {JOBS_MAX}"
    )
    ids = [row[0] for row in connection.execute(old, (anchor_of(service.name),)).fetchall()]
    for table, column in (("recorded", "job"), ("attempts", "job"), ("jobs", "id")):
        connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", [(job_id,) for job_id in ids])


def trim_lines(connection: Connection, job: Job) -> None:
    """Of a service's lines only the latest are kept."""
    connection.execute(
        "DELETE FROM logs WHERE run = ? AND last_number <"
        " (SELECT max(newest.last_number) FROM logs AS newest WHERE newest.run = ?) - ?",
        (job.run, job.run, LINES_MAX),
    )


def _anchor(connection: Connection, service: Service, now: float) -> None:
    anchor = anchor_of(service.name)
    run = Run(anchor, anchor, SERVICE, "", "", "{}", now, service.project, SERVICE)
    connection.execute(f"{RUNS.insert} ON CONFLICT (id) DO UPDATE SET ended_at = NULL", RUNS.dump(run))


# ---------------------------------------------------------------- what happens to it


def handed_over(connection: Connection, job: Job, worker: str, now: float) -> None:
    """A start of the service was handed to a worker."""
    service = _of(connection, job)
    connection.execute("DELETE FROM attempts WHERE job = ? AND number <= ?", (job.id, job.attempt - JOBS_MAX))
    if service is not None:
        again = "restarting" if service.starts or service.restarts else "starting"
        note_service(
            connection, Effects(), service, service.state, again, f"handed to {worker}", now,
            worker=worker, port=None, healthy_at=None,
        )  # fmt: skip


def started(connection: Connection, effects: Effects, job: Job, event: Started, now: float) -> None:
    """Its process runs."""
    service = _of(connection, job)
    if service is not None:
        message = f"runs on {job.worker}, and is not healthy yet"
        note_service(connection, effects, service, service.state, service.reason, message, now)
    add_event(connection, now, "service.started", f"{job.name} runs on {job.worker}", None, job.worker,
              {"service": job.name, "pid": event.pid})  # fmt: skip


def note_state(connection: Connection, effects: Effects, job: Job, event: ServiceState, now: float) -> None:
    """Its agent says how it is. Raises `ProtocolViolation` for what no agent says."""
    if job.kind != SERVICE or event.state not in ("healthy", "degraded") or event.reason not in _REASONS:
        raise ProtocolViolation(f"a job of kind {job.kind} is not {event.state!r} by reason {event.reason!r}")
    service = _of(connection, job)
    if service is None:
        return
    reason, message = event.reason, event.message[:MESSAGE_CHARS_MAX]
    if event.state == "healthy":
        healthy_at = service.healthy_at or event.at
        message = f"is healthy on {job.worker}"
        move_service(
            connection, effects, service, "healthy", "", message, now,
            port=event.port, healthy_at=healthy_at, starts=0,
        )  # fmt: skip
        return
    if reason == "starting" and service.reason == "restarting":
        reason = "restarting"
    move_service(connection, effects, service, "degraded", reason, message, now, port=event.port)


def end_attempt(
    connection: Connection, effects: Effects, job: Job, ending: Ending, at: float, tail: str, now: float
) -> None:
    """One start of a service has ended: another follows, or none."""
    service = _of(connection, job)
    healthy_at = None if service is None else service.healthy_at
    standing = ServiceStanding(
        starts=0 if service is None else service.starts,
        restarts=0 if service is None else service.restarts,
        healthy_s=None if healthy_at is None else max(0.0, at - healthy_at),
        cancelling=job.cancelling or service is None,
    )
    verdict = conclude_service(standing, ending)
    change_attempt(
        connection, job, ended_at=max(at, job.started_at or 0.0), outcome=ending.state,
        reason=ending.reason or ending.state, message=ending.message,
    )  # fmt: skip
    effects.release(job)
    if verdict.state == "degraded":
        _requeue(
            connection, effects, job, verdict.delay_s, keeps_worker=verdict.reason == "restarting", now=now
        )
    else:
        move_job(connection, job, "ended", lease=None, worker=None)
    if service is None:
        return
    columns: Json = {"starts": verdict.starts, "restarts": verdict.restarts, "tail": tail or service.tail}
    if verdict.state != "degraded":
        columns["job"] = None
    after = move_service(
        connection, effects, service, verdict.state, verdict.reason, verdict.message, now,
        worker=None, port=None, healthy_at=None, **columns,
    )  # fmt: skip
    if verdict.state == "stopped" and after.present and after.wanted:
        begin(connection, effects, after, now)  # it was stopped because it is described otherwise now


def give_up(
    connection: Connection, effects: Effects, job: Job, reason: str, message: str, now: float
) -> None:
    """A queued job of a service that no worker is left for has ended."""
    service = _of(connection, job)
    if service is not None:
        move_service(connection, effects, service, "down", reason, message, now, job=None)


def _requeue(
    connection: Connection, effects: Effects, job: Job, delay_s: float, keeps_worker: bool, now: float
) -> None:
    effects.enqueued[job.id] = move_job(
        connection, job, "queued", lease=None, worker=None, devices=(), started_at=None, queued_at=now,
        last_worker=job.worker if keeps_worker else None, not_before=now + delay_s if delay_s else 0.0,
    )  # fmt: skip


def _of(connection: Connection, job: Job) -> Service | None:
    """The service that this job is the present one of."""
    service = load_service(connection, job.name)
    return service if service is not None and service.job == job.id else None
