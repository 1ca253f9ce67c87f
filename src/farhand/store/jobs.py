"""Jobs: the one queue, and the leases by which its entries are handed out."""

from __future__ import annotations

from collections.abc import Sequence

from ..model import Job, Json
from ..resources import Capacity, lacks, taken, to_go_on
from .answers import Answer
from .changes import Changes, Effects, Leased
from .claims import Claim, settle_claims
from .database import Database
from .endings import fail_queued
from .guard import Connection
from .leases import live_on
from .moves import change_job, load_job
from .placements import Placements
from .rows import JOBS

__all__ = ["Jobs", "Leased"]


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

    async def leases(self) -> list[tuple[str, int]]:
        """The jobs that are leased or running, each with its lease."""
        sql = "SELECT id, lease FROM jobs WHERE state IN ('leased', 'running') AND lease IS NOT NULL"
        return await self._database.read(
            lambda connection: [(row[0], row[1]) for row in connection.execute(sql).fetchall()]
        )

    async def count_queued(self) -> int:
        """How many jobs wait."""
        sql = "SELECT count(*) FROM jobs WHERE state = 'queued'"
        return await self._database.read(lambda connection: connection.execute(sql).fetchone()[0])

    async def queued_ids(self) -> list[str]:
        """The ids of those that wait."""
        sql = "SELECT id FROM jobs WHERE state = 'queued'"
        return await self._database.read(
            lambda connection: [row[0] for row in connection.execute(sql).fetchall()]
        )

    async def get(self, job_id: str) -> Job | None:
        """The job, or None."""
        return await self._database.read(lambda connection: load_job(connection, job_id))

    def fail(self, job_id: str, reason: str, message: str, error: Json | None, now: float) -> Answer[Changes]:
        """Fail a queued job; nothing happens to one that is not in the queue (any more)."""

        def write(connection: Connection) -> Changes:
            effects = Effects()
            job = load_job(connection, job_id)
            if job is not None and job.state == "queued":
                fail_queued(connection, effects, job, reason, message, error, now)
            return effects.freeze()

        return self._database.submit(write)

    def lease(self, claims: Sequence[Claim], now: float) -> Answer[tuple[Leased | None, ...]]:
        """Hand queued jobs to workers, each under a new lease, with the devices that it asks for.

        None for a job that is not queued (any more), where what it needs is not free in the worker's
        capacity, or where as many runs of its flow are under way as it allows. All is summed up from live
        leases in this very transaction, so there is no counter that could leak. The writer has it when this
        returns.
        """
        return self._database.submit(
            lambda connection: settle_claims(connection, Effects(), Placements(connection), claims, now)
        )

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
