"""Jobs: the one queue, and the leases by which its entries are handed out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import IllegalTransition
from ..lifecycle import JOB, SENT_AHEAD, advance, may_advance
from ..model import SERVICE, Ask, Attempt, Job, Json, Run
from ..placement import without_preference
from ..resources import (
    ONE_SLOT,
    Capacity,
    Lease,
    blocked_at,
    blocked_bound,
    lacks,
    need,
    one_a_line,
    pick,
    taken,
    to_go_on,
)
from . import nested, service_jobs
from .changes import Changes, Effects, Leased
from .database import Database
from .endings import fail_queued
from .guard import Connection
from .moves import add_notes, change_job, load_job, load_job_and_run, move_job, move_run, moved_run, noted
from .rows import ATTEMPTS, JOBS
from .tasks import count_kept

__all__ = ["Jobs", "Leased"]

BEHIND = "handed to {}, behind another run there"
"""What is said of a run that waits on a slot behind its like."""


class Jobs:
    """The queue as the dispatcher sees it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def queued(self) -> list[Job]:
        """What waits, in the order of the queue: priority, then age."""
        sql = f"SELECT {JOBS.columns} FROM jobs WHERE state = 'queued' ORDER BY priority DESC, age_at, id"
        return await self._database.read(
            lambda connection: [JOBS.load(row) for row in connection.execute(sql).fetchall()]
        )

    async def held(self) -> list[Job]:
        """What is leased or running."""
        sql = f"SELECT {JOBS.columns} FROM jobs WHERE state IN ('leased', 'running') ORDER BY worker"
        return await self._database.read(
            lambda connection: [JOBS.load(row) for row in connection.execute(sql).fetchall()]
        )

    async def get(self, job_id: str) -> Job | None:
        """The job, or None."""
        return await self._database.read(lambda connection: load_job(connection, job_id))

    async def fail(self, job_id: str, reason: str, message: str, error: Json | None, now: float) -> Changes:
        """Fail a queued job; nothing happens to one that is not in the queue (any more)."""

        def write(connection: Connection) -> Changes:
            effects = Effects()
            job = load_job(connection, job_id)
            if job is not None and job.state == "queued":
                fail_queued(connection, effects, job, reason, message, error, now)
            return effects.freeze()

        return await self._database.write(write)

    async def lease(
        self,
        job_id: str,
        worker: str,
        capacity: Capacity,
        now: float,
        git: str = "",
        fell_back: bool = False,
    ) -> Leased | None:
        """Hand a queued job to a worker under a new lease, with the devices that it asks for.

        ``git`` is the state of the worker's own checkout.

        None when the job is not queued (any more), what it needs is not free in the worker's ``capacity``,
        or as many runs of its flow are under way as it allows. All is summed up from live leases in this
        very transaction, so there is no counter that could leak. ``fell_back``: it goes to the server
        without what it prefers, so it is given no GPU.
        """

        def write(connection: Connection) -> Leased | None:
            found = load_job_and_run(connection, job_id)
            if found is None:
                return None
            return lease_job(connection, *found, worker, capacity, now, git, fell_back)

        return await self._database.write(write)

    async def proceed(self, job_id: str, lease: int, capacity: Capacity) -> Job | None:
        """Give an unblocked job its slot and cores again; None when they are not free, or it is not that."""

        def write(connection: Connection) -> Job | None:
            job = load_job(connection, job_id)
            if job is None or (job.lease, job.blocked) != (lease, "unblocked") or job.worker is None:
                return None
            in_use = taken(live_on(connection, job.worker), capacity)
            if lacks(to_go_on(job.ask), in_use, capacity):
                return None
            return change_job(connection, job, blocked="")

        return await self._database.write(write)


def lease_job(
    connection: Connection,
    job: Job,
    run: Run,
    worker: str,
    capacity: Capacity,
    now: float,
    git: str,
    fell_back: bool,
    behind: int | None = None,
) -> Leased | None:
    """A lease on a job of a run, both as they are stored; None where `Jobs.lease` says so.

    ``behind``: it is to wait on the slot that was taken under this lease, if anybody has that.
    """
    columns = columns_of_lease(connection, job, worker, capacity, fell_back, behind)
    if columns is None:
        return None
    job = move_job(connection, job, "leased", **columns)
    add_attempt(connection, job, now, git)
    run = _take(connection, job, run, worker, now)
    again = job.attempt > 1
    kept = count_kept(connection, job.id) if again or run.retry_of else 0
    return Leased(job, run, kept, nested.open_keys(connection, job.run) if again else {})


def lease_behind(
    connection: Connection, jobs: Sequence[tuple[Job, Run]], worker: str, now: float, git: str, line: int
) -> list[Leased | None]:
    """Leases on jobs that wait on one slot, each as `lease_job` makes it; all of them are written at once."""
    taken = [job for job, _ in jobs if _may_be_behind(job)]
    if not taken or not _may_wait_behind(connection, taken[0].ask, worker, line):
        return [None] * len(jobs)
    last = connection.execute("UPDATE meta SET lease = lease + ? WHERE id = 1 RETURNING lease", (len(taken),))
    first = int(last.fetchone()[0]) - len(taken) + 1
    held = {
        job.id: JOBS.changed(
            job,
            {
                "state": advance(JOB, job.state, "leased"),
                "lease": first + number,
                "worker": worker,
                "attempt": job.attempt + 1,
                "started_at": None,
                "devices": (),
                "behind": line,
            },
        )
        for number, job in enumerate(taken)
    }
    moved = connection.executemany(
        "UPDATE jobs SET state = ?, lease = ?, worker = ?, attempt = ?, started_at = NULL, devices = '[]',"
        " behind = ? WHERE id = ? AND state = 'queued' AND lease IS NULL",
        [(job.state, job.lease, worker, job.attempt, line, job.id) for job in held.values()],
    )
    if moved.rowcount != len(held):
        raise IllegalTransition("jobs that were to be handed over are no longer queued")
    add_attempts(connection, held.values(), now, git)
    calls = [job for job in held.values() if job.kind == "call"]
    connection.executemany(
        "UPDATE task_runs SET worker = ?, attempts = ? WHERE run = ? AND key = ?",
        [(worker, job.attempt, job.run, job.key) for job in calls],
    )
    runs = [(held[job.id], run) for job, run in jobs if job.kind == "run" and job.id in held]
    begun = _take_runs(connection, runs, now)
    return [_leased(connection, held.get(job.id), begun.get(run.id, run), now) for job, run in jobs]


def _take_runs(connection: Connection, jobs: Sequence[tuple[Job, Run]], now: float) -> dict[str, Run]:
    """The runs of jobs that wait on one slot, as those that begin there."""
    taken = [
        moved_run(
            run, "starting", "leased", BEHIND.format(job.worker), worker=job.worker, attempt=job.attempt
        )
        for job, run in jobs
    ]
    if not taken:
        return {}
    moved = connection.executemany(
        "UPDATE runs SET state = ?, reason = ?, message = ?, worker = ?, attempt = ?"
        " WHERE id = ? AND state = 'queued'",
        [(run.state, run.reason, run.message, run.worker, run.attempt, run.id) for run in taken],
    )
    if moved.rowcount != len(taken):
        raise IllegalTransition("runs that were to be handed over are no longer queued")
    add_notes(connection, [noted(run, now) for run in taken])
    return {run.id: run for run in taken}


def _may_be_behind(job: Job) -> bool:
    free = job.kind in SENT_AHEAD and job.settings.max_concurrent is None
    return free and may_advance(JOB, job.state, "leased")


def _leased(connection: Connection, job: Job | None, run: Run, now: float) -> Leased | None:
    if job is None:
        return None
    _follow(connection, job, now)
    kept = count_kept(connection, job.id) if job.attempt > 1 or run.retry_of else 0
    called = nested.open_keys(connection, job.run) if job.attempt > 1 else {}
    return Leased(job, run, kept, called)


def columns_of_lease(
    connection: Connection,
    job: Job,
    worker: str,
    capacity: Capacity,
    fell_back: bool,
    behind: int | None = None,
) -> dict[str, Any] | None:
    """What a new lease makes of a job; None where `Jobs.lease` says so."""
    if not may_advance(JOB, job.state, "leased"):
        return None
    ask = without_preference(job.ask) if fell_back else job.ask
    if behind is not None and not _may_wait_behind(connection, ask, worker, behind):
        behind = None
    devices = () if behind is not None else _fit(connection, ask, job.depth, worker, capacity)
    if devices is None:
        return None
    limit = job.settings.max_concurrent
    if limit is not None and job.kind == "run" and live_runs_of(connection, job.flow) >= limit:
        return None
    lease = int(
        connection.execute("UPDATE meta SET lease = lease + 1 WHERE id = 1 RETURNING lease").fetchone()[0]
    )
    columns: dict[str, Any] = {"lease": lease, "worker": worker, "attempt": job.attempt + 1}
    columns |= {"started_at": None, "devices": devices}
    return columns if behind is None else columns | {"behind": behind}


def add_attempt(connection: Connection, job: Job, now: float, git: str) -> None:
    """The attempt that a job's lease is."""
    connection.execute(ATTEMPTS.insert, _attempt(job, now, git))


def add_attempts(connection: Connection, jobs: Iterable[Job], now: float, git: str) -> None:
    """The attempts that the leases of several jobs are."""
    connection.executemany(ATTEMPTS.insert, [_attempt(job, now, git) for job in jobs])


def _attempt(job: Job, now: float, git: str) -> tuple[Any, ...]:
    return ATTEMPTS.dump(
        Attempt(
            job.lease or 0,
            job.id,
            job.run,
            job.attempt,
            job.worker or "",
            now,
            fingerprint=job.fingerprint,
            git=git or job.git,
        )
    )


def _may_wait_behind(connection: Connection, ask: Ask, worker: str, behind: int) -> bool:
    """Whether those who share a slot ask for the same, and none of them has given it back."""
    rows = connection.execute(
        "SELECT ask, blocked FROM jobs WHERE worker = ? AND state IN ('leased', 'running')"
        " AND coalesce(behind, lease) = ?",
        (worker, behind),
    ).fetchall()
    return bool(rows) and all(not blocked and JOBS.read("ask", text) == ask for text, blocked in rows)


def _fit(
    connection: Connection, ask: Ask, depth: int, worker: str, capacity: Capacity
) -> tuple[str, ...] | None:
    """The devices for a job that asks so, if the worker has room for it; None if it has not."""
    needed = need(ask)
    if needed == ONE_SLOT:  # what most jobs need is counted without reading what others asked for
        rows = connection.execute(_LIVE, (worker,)).fetchall()
        running = {line for blocked, _, line in rows if not blocked}
        as_deep = sum(1 for blocked, their_depth, _ in rows if blocked and their_depth >= depth)
        return () if len(running) < capacity.slots and as_deep < blocked_bound(capacity) else None
    leases = live_on(connection, worker)
    if lacks(needed, taken(leases, capacity), capacity):
        return None
    if blocked_at(leases, depth) >= blocked_bound(capacity):
        return None
    return pick(needed.gpus, leases, capacity)


_LIVE = (
    "SELECT blocked, depth, coalesce(behind, lease) FROM jobs"
    " WHERE worker = ? AND state IN ('leased', 'running') AND kind <> 'service'"
)


def live_on(connection: Connection, worker: str) -> list[Lease]:
    """The live leases of a worker, as far as they count."""
    rows = connection.execute(
        "SELECT ask, devices, blocked, depth, coalesce(behind, lease) FROM jobs"
        " WHERE worker = ? AND state IN ('leased', 'running') ORDER BY lease",
        (worker,),
    ).fetchall()
    return one_a_line(
        (int(line), Lease(JOBS.read("ask", ask), JOBS.read("devices", devices), blocked, int(depth)))
        for ask, devices, blocked, depth, line in rows
    )


def live_runs_of(connection: Connection, flow: str) -> int:
    """How many runs of a flow are under way."""
    row = connection.execute(
        "SELECT count(*) FROM jobs WHERE flow = ? AND kind = 'run' AND state IN ('leased', 'running')",
        (flow,),
    ).fetchone()
    return int(row[0])


def _take(connection: Connection, job: Job, run: Run, worker: str, now: float) -> Run:
    """Show the hand-off where people look: on the run, or on the call's task run."""
    if job.kind == SERVICE:
        service_jobs.handed_over(connection, job, worker, now)
        return run
    if job.kind == "run":
        message = f"handed to {worker}"
        return move_run(
            connection, Effects(), run, "starting", "leased", message, now,
            worker=worker, attempt=job.attempt,
        )  # fmt: skip
    connection.execute(
        "UPDATE task_runs SET worker = ?, attempts = ? WHERE run = ? AND key = ?",
        (worker, job.attempt, job.run, job.key),
    )
    _follow(connection, job, now)
    return run


def _follow(connection: Connection, job: Job, now: float) -> None:
    """The run of a flow that a call is, where it is one, goes with it."""
    nested.follow(
        connection, Effects(), job, "starting", now,
        reason="leased", message=f"handed to {job.worker}", worker=job.worker, attempt=job.attempt,
    )  # fmt: skip
