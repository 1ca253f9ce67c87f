"""Attempts: one for each lease of a job.

All that is known of one when it is handed over, its job has too; so it gets a row with the first report under
its lease, and most have all of it written then, with their end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..model import Attempt, Job
from .guard import Connection
from .rows import ATTEMPTS, JOBS

_CHANGE = f"{ATTEMPTS.insert} ON CONFLICT (lease) DO UPDATE SET"
_UNHEARD_OF = (
    f"SELECT {JOBS.columns} FROM jobs WHERE state IN ('leased', 'running')"
    " AND NOT EXISTS (SELECT 1 FROM attempts WHERE attempts.lease = jobs.lease) AND"
)


def attempt_of(job: Job) -> Attempt:
    """The attempt that the job's lease is, as it was handed over."""
    return Attempt(
        job.lease or 0,
        job.id,
        job.run,
        job.attempt,
        job.worker or "",
        job.leased_at,
        fingerprint=job.fingerprint,
        git=job.checkout or job.git,
    )


def change_attempt(connection: Connection, job: Job, **columns: Any) -> None:
    """Write columns of the attempt that the job's lease is, and all the others if it has no row yet."""
    changed = ", ".join(f"{name} = excluded.{name}" for name in columns)
    row = ATTEMPTS.dump(ATTEMPTS.changed(attempt_of(job), columns))
    connection.execute(f"{_CHANGE} {changed}", row)


def unheard_of(connection: Connection, condition: str, values: Sequence[Any]) -> list[Job]:
    """Jobs whose attempts have no rows, of those that workers hold and the condition selects."""
    rows = connection.execute(f"{_UNHEARD_OF} {condition}", values).fetchall()
    return [JOBS.load(row) for row in rows]
