"""Leases, made of what the dispatcher claims: in a transaction of their own, or in that of a report.

The end of an attempt frees a slot, and a placed call asks for one. Who gets it is chosen before the report
is recorded; here the store agrees, or does not, once the report's own changes are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..lifecycle import JOB, SENT_AHEAD, advance
from ..model import Job, Run
from ..resources import Capacity
from .changes import Effects, Leased
from .guard import Connection
from .handovers import follow_call, hand_over, hand_over_together, leased, load_queued, show_calls, take_runs
from .leases import Room, lease_numbers, leased_as, place_of
from .placements import Placements
from .rows import JOBS


@dataclass(frozen=True, slots=True)
class Claim:
    """A worker for a job: a queued one, or the call with ``key`` of ``run`` that this very report places.

    ``call`` is what that call's job is to be like. ``git`` is the state of the worker's own checkout;
    ``fell_back``: it goes to the server without what it prefers, so it is given no GPU. ``behind``: it is to
    wait on the slot that was taken under this lease, if anybody has that; ``follows``: on that of the claim
    before it.
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
    call: Job | None = None


def settle_claims(
    connection: Connection, effects: Effects, placements: Placements, claims: Sequence[Claim], now: float
) -> tuple[Leased | None, ...]:
    """A lease for each claim, or None, as `Jobs.lease` gives them; what got one never was in the queue."""
    return _Settlement(connection, effects, placements, claims, now).settled() if claims else ()


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


class _Settlement:
    """The claims of a transaction. Leases of what may be sent ahead are written together, once all is
    decided."""

    def __init__(
        self,
        connection: Connection,
        effects: Effects,
        placements: Placements,
        claims: Sequence[Claim],
        now: float,
    ) -> None:
        self._connection = connection
        self._effects = effects
        self._placements = placements
        self._claims = claims
        self._now = now
        self._queued = load_queued(connection, [claim.job for claim in claims if claim.job])
        self._placed = {(job.run, job.key): job for job in effects.enqueued.values() if job.attempt == 0}
        self._rooms: dict[str, Room] = {}
        self._numbers = range(0)
        self._retrying = set[str]()
        self._runs: dict[str, Run | None] = {}
        self._together: list[Job] = []

    def settled(self) -> tuple[Leased | None, ...]:
        """What came of each."""
        made: list[Job | None] = []
        for group in _on_one_slot(self._claims):
            first = self._lease(group[0], group[0].behind)
            line = group[0].behind if first is None else first.line
            made.append(first)
            made += [None if line is None else self._lease(claim, line, alone=False) for claim in group[1:]]
        self._write()
        return tuple(None if job is None else self._leased(job) for job in made)

    def _lease(self, claim: Claim, behind: int | None, alone: bool = True) -> Job | None:
        """The job under its lease. One that is not to be ``alone`` joins others on a slot, or has none."""
        job = self._job_of(claim)
        together = job is not None and job.kind in SENT_AHEAD and job.settings.max_concurrent is None
        if job is None or not (alone or together):
            return None
        room = self._rooms.get(claim.worker)
        if room is None:
            room = self._rooms[claim.worker] = Room(self._connection, claim.worker)
        place = place_of(self._connection, job, room, claim.capacity, claim.fell_back, behind)
        if place is None or not (alone or place["behind"] is not None):
            return None
        columns = leased_as(job, claim.worker, self._number(), place, self._now, claim.git)
        held = JOBS.changed(job, {**columns, "state": advance(JOB, job.state, "leased")})
        room.add(held, written=not together)
        self._effects.enqueued.pop(job.id, None)
        if together:
            self._together.append(held)
        else:
            self._runs[job.id] = hand_over(self._connection, job, columns, self._now)
        return held

    def _job_of(self, claim: Claim) -> Job | None:
        """A job that is queued, in the store or by this very report; it is claimed once."""
        if claim.key:
            job = self._placed.pop((claim.run, claim.key), None)
            retrying = self._placements.retries(claim.run)
        else:
            job, retrying = self._queued.pop(claim.job, (None, False))
        if job is not None and retrying:
            self._retrying.add(job.id)
        return job

    def _number(self) -> int:
        """The next lease number: there is one for each claim, taken when the first is made."""
        if not self._numbers:
            self._numbers = lease_numbers(self._connection, len(self._claims))
        number, self._numbers = self._numbers[0], self._numbers[1:]
        return number

    def _write(self) -> None:
        """Write the leases that are made together."""
        if not self._together:
            return
        calls = [job for job in self._together if job.kind == "call"]
        runs = [job for job in self._together if job.kind == "run"]
        queued = [job for job in calls if not self._placements.lease(job)]
        self._placements.flush()
        hand_over_together(self._connection, [*queued, *runs])
        show_calls(self._connection, queued)
        self._runs |= take_runs(self._connection, runs, self._now)
        for job in calls:
            if job.nested is not None:
                follow_call(self._connection, job, self._now)

    def _leased(self, job: Job) -> Leased:
        return leased(self._connection, job, self._runs.get(job.id), job.id in self._retrying)
