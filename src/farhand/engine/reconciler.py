"""Looks now and then whether memory agrees with the store about jobs; the store is right.

Queue and fleet are kept by following every commit up. Should that ever go wrong for one, a job would be
queued in the store and handed to nobody, or a slot would stay taken, until the next start. This is no part of
the way of any job: what it finds is a mistake of this program, is said in the log, and is put right.
"""

from __future__ import annotations

import logging

from ..store import Store
from .fleet import Fleet
from .queue import Queue
from .rescuer import Rescuer
from .service import Service, Wakeup

log = logging.getLogger("farhand")

EVERY_S = 30.0
"""Between two looks; longer than anything is on its way between the store and memory."""

_AT_ONCE = 1000
_QUEUED = 0
"""In the place of a lease: the job is queued."""

Place = tuple[str, int]
"""A job and the lease it is held by, or that it is queued."""


class Reconciler(Service):
    """What was otherwise at one look, and is so still at the next, is put right."""

    name = "reconciler"

    def __init__(
        self,
        store: Store,
        queue: Queue,
        fleet: Fleet,
        rescuer: Rescuer,
        wakeup: Wakeup,
        every_s: float = EVERY_S,
    ) -> None:
        super().__init__()
        self._store = store
        self._queue = queue
        self._fleet = fleet
        self._rescuer = rescuer
        self._wakeup = wakeup
        self._every_s = every_s
        self._pause = Wakeup()
        self._missing = self._surplus = frozenset[Place]()

    async def _work(self) -> None:
        while True:
            await self._pause.wait(self._every_s)
            await self.look()

    async def look(self) -> None:
        """Compare, and put right what the look before has found as well."""
        stored = set(await self._store.jobs.leases())
        in_memory = self._held()
        missing = frozenset(stored - in_memory) | await self._not_queued()
        surplus = frozenset(in_memory - stored)
        still_missing, still_surplus = missing & self._missing, surplus & self._surplus
        self._missing, self._surplus = missing, surplus
        for job_id, lease in still_missing:
            await self._take_up(job_id, lease)
        for job_id, lease in still_surplus:  # a lease that the store has not had for so long never comes back
            if self._fleet.release(job_id, lease) is not None:
                log.error("job %s was held under lease %s, which the store does not know", job_id, lease)
                self._wakeup.set()

    def _held(self) -> set[Place]:
        return {(h.job.id, h.lease) for member in self._fleet for h in member.holdings.values()}

    async def _not_queued(self) -> frozenset[Place]:
        """What is queued in the store and not here. Nearly always there is none, and to count tells."""
        if await self._store.jobs.count_queued() <= len(self._queue):
            return frozenset()
        ids = await self._store.jobs.queued_ids()
        return frozenset([(job_id, _QUEUED) for job_id in ids if not self._knows(job_id)][:_AT_ONCE])

    def _knows(self, job_id: str) -> bool:
        """Asked of every job that waits; whether it is promised takes the longest to find out."""
        if self._queue.knows(job_id) or self._fleet.holder(job_id) is not None:
            return True
        return any(job_id in member.promises for member in self._fleet)

    async def _take_up(self, job_id: str, lease: int) -> None:
        job = await self._store.jobs.get(job_id)
        if job is None or self._knows(job_id):
            return
        if lease == _QUEUED and job.state == "queued":
            log.error("job %s was queued in the store only; it is in the queue now", job_id)
            self._queue.add(self._queue.steady.of(job), self._queue.steady.now())
            self._wakeup.set()
        elif job.lease == lease and job.worker is not None:
            log.error("job %s was held by %s in the store only", job_id, job.worker)
            self._fleet.hold(self._fleet.member(job.worker), job, lease)
            self._rescuer.look()
