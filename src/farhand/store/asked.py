"""Calls that are placed as most single ones are: asked for alone, once, and given a worker at once.

All that has to be known is read by one statement, and each row is written once. What is not so (several calls
at once, one that was placed before or is a flow, a parent that is being cancelled or retries another run, a
worker without room) takes the way of `reported` and `claims`, which gives the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from farhand_worker.protocol import Call

from ..lifecycle import JOB, advance
from ..model import Job, TaskRun
from .calls import listed
from .changes import Changes, Leased
from .claims import Claim
from .guard import Connection
from .leases import Room, lease_numbers, leased_as, place_of
from .rows import JOBS, TASK_RUNS
from .run_blobs import digests_of, name_blobs

_FIND = (
    "SELECT (SELECT seq FROM recorded c WHERE c.job = j.id AND c.lease = j.lease AND c.source = ?),"
    " (SELECT max(number) FROM task_runs o WHERE o.run = j.run), j.worker"
    " FROM jobs j JOIN runs r ON r.id = j.run"
    " WHERE j.id = ? AND j.lease = ? AND j.run = ? AND j.state = 'running' AND j.cancelling = 0"
    " AND r.retry_of IS NULL"
    " AND NOT EXISTS (SELECT 1 FROM task_runs t WHERE t.run = j.run AND t.key = ?)"
)


def foreseen(job_id: str, events: Sequence[Any], claims: Sequence[Claim]) -> Job | None:
    """What the call is to be like that a report of a job asks for, where report and claim look like that."""
    if len(events) != 1 or len(claims) != 1 or type(events[0]) is not Call:
        return None
    event, call = events[0], claims[0].call
    if call is None or (call.key, call.parent_job) != (event.key, job_id):
        return None
    if call.ask.flavor or call.settings.max_concurrent is not None:
        return None
    return call if event.flow is None and event.nested is None else None


def place_asked(
    connection: Connection,
    asking: tuple[str, int, str, int],
    event: Call,
    call: Job,
    claim: Claim,
    now: float,
    worker: str | None,
) -> tuple[Changes, Leased] | None:
    """Place the call that a job asks for by an event, under a lease, as it was foreseen for that very lease.

    None, and nothing is written, where it is not as most are. ``asking`` is the job, its lease, the source
    and the number of the event.
    """
    job_id, lease, source, number = asking
    run = call.run
    row = connection.execute(_FIND, (source, job_id, lease, run, event.key)).fetchone()
    if row is None or number != (row[0] or 0) + 1 or worker not in (None, row[2]):
        return None
    place_number = int(row[1] or 0) + 1
    room = Room(connection, claim.worker)
    place = place_of(connection, call, room, claim.capacity, claim.fell_back, claim.behind)
    if place is None:
        return None
    (given,) = lease_numbers(connection, 1)
    columns = leased_as(call, claim.worker, given, place, now, claim.git)
    columns |= {"id": f"{run}.{place_number}", "state": advance(JOB, call.state, "leased")}
    columns |= {"created_at": now, "queued_at": now}
    columns |= {"name": event.name, "entry": event.entry, "args": event.args}  # they may come cleaned
    held = JOBS.changed(call, columns)
    task = TaskRun(
        run, event.key, place_number, event.name, "queued", event.scope, event.index, held.attempt,
        claim.worker, job=job_id, placed=held.id, needs=listed(event.needs), tags=listed(event.tags),
    )  # fmt: skip
    connection.execute(JOBS.insert, JOBS.dump(held))
    connection.execute(TASK_RUNS.insert, TASK_RUNS.dump(task))
    if digests := digests_of(event.args):
        name_blobs(connection, run, digests)
    return Changes(streams=(run,)), Leased(held, None, 0)
