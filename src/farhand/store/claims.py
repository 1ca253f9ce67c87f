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
from .jobs import lease_behind, lease_job
from .moves import load_job_and_run, load_jobs_and_runs, load_run


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
    for group in _on_one_slot(claims):
        first = group[0]
        leased = _settle(connection, effects, first, placed.get((first.run, first.key)), now)
        found.append(leased)
        line = first.behind if leased is None else leased.job.line
        found += _settle_behind(connection, effects, group[1:], now, line)
    return tuple(found)


def _on_one_slot(claims: Sequence[Claim]) -> list[list[Claim]]:
    """The claims in their order, those together that share a slot."""
    groups: list[list[Claim]] = []
    for claim in claims:
        shares = claim.follows or (
            claim.behind is not None and groups and groups[-1][0].behind == claim.behind
        )
        if shares and groups:
            groups[-1].append(claim)
        else:
            groups.append([claim])
    return groups


def _settle_behind(
    connection: Connection, effects: Effects, claims: Sequence[Claim], now: float, line: int | None
) -> list[Leased | None]:
    """Leases for queued jobs that wait on the slot of one which has its lease: none where that has none."""
    if not claims or line is None:
        return [None] * len(claims)
    known = load_jobs_and_runs(connection, [claim.job for claim in claims])
    worker, git = claims[0].worker, claims[0].git
    made = lease_behind(connection, list(known.values()), worker, now, git, line)
    leased = {each.job.id: each for each in made if each is not None}
    for job_id in leased:
        effects.enqueued.pop(job_id, None)
    return [leased.get(claim.job) for claim in claims]


def _settle(
    connection: Connection, effects: Effects, claim: Claim, placed: Job | None, now: float
) -> Leased | None:
    if claim.job:
        found = load_job_and_run(connection, claim.job)
    else:
        found = None if placed is None else (placed, load_run(connection, placed.run))
    if found is None:
        return None
    leased = lease_job(
        connection, *found, claim.worker, claim.capacity, now, claim.git, claim.fell_back, claim.behind
    )
    if leased is not None:
        effects.enqueued.pop(leased.job.id, None)
    return leased
