"""Leases that follow from a report, made in the transaction that records it.

The end of an attempt frees a slot, and a placed call asks for one. Who gets it is chosen before the report
is recorded; here the store agrees, or does not, once the report's own changes are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..model import Job
from ..resources import Capacity
from .changes import Effects, Leased
from .guard import Connection
from .jobs import lease_job
from .moves import load_job_and_run, load_run


@dataclass(frozen=True, slots=True)
class Claim:
    """A worker for a job: a queued one, or the call with ``key`` of ``run`` that this very report places.

    ``behind``: it is to wait on the slot that was taken under this lease; ``follows``: on that of the claim
    before it. The rest is as in `Jobs.lease`.
    """

    worker: str
    capacity: Capacity
    job: str = ""
    key: str = ""
    git: str = ""
    fell_back: bool = False
    run: str = ""
    behind: int | None = None
    follows: bool = False


def settle_claims(
    connection: Connection, effects: Effects, claims: Sequence[Claim], now: float
) -> tuple[Leased | None, ...]:
    """A lease for each claim, or None, as `Jobs.lease` gives them; what got one never was in the queue."""
    if not claims:
        return ()
    placed = {(job.run, job.key): job for job in effects.enqueued.values() if job.attempt == 0}
    found: list[Leased | None] = []
    line: int | None = None
    for claim in claims:
        behind = line if claim.follows else claim.behind
        leased = _settle(connection, effects, claim, placed.get((claim.run, claim.key)), now, behind)
        if leased is not None:
            line = leased.job.line
        elif not claim.follows:
            line = None
        found.append(leased)
    return tuple(found)


def _settle(
    connection: Connection,
    effects: Effects,
    claim: Claim,
    placed: Job | None,
    now: float,
    behind: int | None,
) -> Leased | None:
    if claim.job:
        found = load_job_and_run(connection, claim.job)
    else:
        found = None if placed is None else (placed, load_run(connection, placed.run))
    if found is None:
        return None
    leased = lease_job(
        connection, *found, claim.worker, claim.capacity, now, claim.git, claim.fell_back, behind
    )
    if leased is not None:
        effects.enqueued.pop(leased.job.id, None)
    return leased
