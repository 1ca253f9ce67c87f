"""What a new lease makes of a job, and whether a worker has room for it."""

from __future__ import annotations

from typing import Any

from ..lifecycle import JOB, may_advance
from ..model import SERVICE, Ask, Job
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
)
from .guard import Connection, Variants
from .rows import JOBS

RESERVED = 64
"""So many lease numbers are taken from the store at once."""


class Room:
    """What the live leases of a worker take: those in the store, and those of the transaction that are not
    written yet (`add`). Those who share a slot are a line, by the lease under which it was taken."""

    def __init__(self, connection: Connection, worker: str) -> None:
        self._connection = connection
        self._worker = worker
        self._added: list[tuple[int, Lease]] = []
        self._running = set[int]()
        self._blocked: list[int] = []
        self._asks: dict[int, set[Any]] = {}
        for line, ask, blocked, depth, kind in connection.execute(_LINES, (worker,)).fetchall():
            if kind != SERVICE:
                self._note(int(line), None if blocked else JOBS.read("ask", ask), int(depth))

    def _note(self, line: int, ask: Ask | None, depth: int) -> None:
        """Count one who has a slot; without ``ask`` it is blocked, and has given it back."""
        self._asks.setdefault(line, set()).add(ask)
        if ask is None:
            self._blocked.append(depth)
        else:
            self._running.add(line)

    def add(self, job: Job, written: bool) -> None:
        """Count a lease that was made since, and is written already or is not."""
        if not written:
            self._added.append((job.line, Lease(job.ask, job.devices, depth=job.depth)))
        if job.kind != SERVICE:
            self._note(job.line, job.ask, job.depth)

    def may_join(self, ask: Ask, line: int) -> bool:
        """Whether those who share a slot ask for the same, and none of them has given it back."""
        return self._asks.get(line) == {ask}

    def fit(self, ask: Ask, depth: int, capacity: Capacity) -> tuple[str, ...] | None:
        """The devices for a job that asks so, if the worker has room for it; None if it has not."""
        needed = need(ask)
        if needed == ONE_SLOT:  # what most jobs need is counted without reading what others asked for
            as_deep = sum(1 for their_depth in self._blocked if their_depth >= depth)
            return () if len(self._running) < capacity.slots and as_deep < blocked_bound(capacity) else None
        leases = one_a_line([*_live_on(self._connection, self._worker), *self._added])
        if lacks(needed, taken(leases, capacity), capacity):
            return None
        if blocked_at(leases, depth) >= blocked_bound(capacity):
            return None
        return pick(needed.gpus, leases, capacity)


_LINES = (
    "SELECT coalesce(behind, lease), ask, blocked, depth, kind FROM jobs"
    " WHERE worker = ? AND state IN ('leased', 'running')"
)


def among_held(sql: str) -> Variants:
    """A statement that looks, where ``{}`` is, for jobs of a run among all that workers hold.

    Those are few, while the run may have had many calls, which SQLite would go through.
    """
    return Variants(sqlite=sql.format("INDEXED BY jobs_held"), postgresql=sql.format(""))


def live_on(connection: Connection, worker: str) -> list[Lease]:
    """The live leases of a worker, as far as they count."""
    return one_a_line(_live_on(connection, worker))


def _live_on(connection: Connection, worker: str) -> list[tuple[int, Lease]]:
    rows = connection.execute(
        "SELECT ask, devices, blocked, depth, coalesce(behind, lease) FROM jobs"
        " WHERE worker = ? AND state IN ('leased', 'running') ORDER BY lease",
        (worker,),
    ).fetchall()
    return [
        (int(line), Lease(JOBS.read("ask", ask), JOBS.read("devices", devices), blocked, int(depth)))
        for ask, devices, blocked, depth, line in rows
    ]


def live_runs_of(connection: Connection, flow: str) -> int:
    """How many runs of a flow are under way."""
    row = connection.execute(
        "SELECT count(*) FROM jobs WHERE flow = ? AND kind = 'run' AND state IN ('leased', 'running')",
        (flow,),
    ).fetchone()
    return int(row[0])


def lease_numbers(connection: Connection, count: int) -> range:
    """Take the next lease numbers. One that is not used is nobody's.

    The store's counter is moved on by many at once, in the transaction that uses the first of them. The rest
    are for those that follow, unless that transaction or a later one is undone: they are nobody's then.
    """
    reserved = connection.reserved
    if len(reserved) < count:
        taken = max(count, RESERVED)
        row = connection.execute(
            "UPDATE meta SET lease = lease + ? WHERE id = 1 RETURNING lease", (taken,)
        ).fetchone()
        last = int(row[0])
        reserved = range(last - taken + 1, last + 1)
    connection.reserved = reserved[count:]
    return reserved[:count]


def place_of(
    connection: Connection,
    job: Job,
    room: Room,
    capacity: Capacity,
    fell_back: bool = False,
    behind: int | None = None,
) -> dict[str, Any] | None:
    """Where a job would be under a new lease: its devices, and the line if it joins one (``behind``).

    None where `Jobs.lease` gives none.
    """
    if not may_advance(JOB, job.state, "leased"):
        return None
    ask = without_preference(job.ask) if fell_back else job.ask
    if behind is not None and not room.may_join(ask, behind):
        behind = None
    devices = () if behind is not None else room.fit(ask, job.depth, capacity)
    if devices is None:
        return None
    limit = job.settings.max_concurrent
    if limit is not None and job.kind == "run" and live_runs_of(connection, job.flow) >= limit:
        return None
    return {"devices": devices, "behind": behind}


def leased_as(
    job: Job, worker: str, lease: int, place: dict[str, Any], now: float, checkout: str
) -> dict[str, Any]:
    """The columns of a job that is handed over, but for its state."""
    return {
        "lease": lease,
        "worker": worker,
        "attempt": job.attempt + 1,
        "started_at": None,
        "leased_at": now,
        "checkout": checkout,
        **place,
    }
