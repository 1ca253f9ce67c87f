"""What a transaction changed, for whoever has to act on it once it is committed."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..model import Job, Json, Run


@dataclass(frozen=True, slots=True)
class PlacedOutcome:
    """The end of a placed call, for the job that waits for it. ``body`` is that of a `Checkpoint`."""

    parent_job: str
    key: str
    body: Json


@dataclass(frozen=True, slots=True)
class Unfit:
    """A worker could not begin with a job that it had; ``reason``: code_missing or arguments_do_not_load."""

    job: Job
    worker: str
    reason: str
    message: str
    error: Json | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    """What one committed transaction changed.

    ``runs`` as they are now; ``enqueued`` jobs that are in the queue now, for the first time or again;
    ``released`` leases that ended, as (job, lease, worker); ``cancel`` live jobs whose engine has to be
    told; ``outcomes`` ended calls for waiting parents; ``dequeued`` jobs that left the queue without
    being leased; ``streams`` runs that got log lines, metrics or task runs; ``unfit`` what workers turned
    out not to be able to do; ``blocked`` live jobs that wait for placed calls alone, or would go on;
    ``services`` by name those that are otherwise now.
    """

    runs: tuple[Run, ...] = ()
    enqueued: tuple[Job, ...] = ()
    released: tuple[tuple[str, int, str], ...] = ()
    cancel: tuple[Job, ...] = ()
    outcomes: tuple[PlacedOutcome, ...] = ()
    dequeued: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    unfit: tuple[Unfit, ...] = ()
    blocked: tuple[Job, ...] = ()
    services: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Leased:
    """A job just handed to a worker, and how many outcomes of earlier attempts it may replay.

    ``run`` is the run as it is now, where it is the run's own job.
    ``called`` has the runs of flows that those attempts had called and that have not ended, by key.
    """

    job: Job
    run: Run | None
    kept: int
    called: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Recorded:
    """The last event number recorded of each spool, what the reports changed, and what came of the claims."""

    seqs: tuple[int, ...]
    changes: Changes
    leased: tuple[Leased | None, ...] = ()

    @property
    def seq(self) -> int:
        """The number of the last spool; there may be no other."""
        return self.seqs[-1]


@dataclass(slots=True)
class Effects:
    """The `Changes` of a transaction while it is under way."""

    runs: dict[str, Run] = field(default_factory=dict[str, Run])
    enqueued: dict[str, Job] = field(default_factory=dict[str, Job])
    released: list[tuple[str, int, str]] = field(default_factory=list[tuple[str, int, str]])
    cancel: dict[str, Job] = field(default_factory=dict[str, Job])
    outcomes: list[PlacedOutcome] = field(default_factory=list[PlacedOutcome])
    dequeued: list[str] = field(default_factory=list[str])
    streams: set[str] = field(default_factory=set[str])
    unfit: list[Unfit] = field(default_factory=list[Unfit])
    blocked: dict[str, Job] = field(default_factory=dict[str, Job])
    services: set[str] = field(default_factory=set[str])

    def dequeue(self, job_id: str) -> None:
        """A job left the queue; one that this very transaction had put there was never seen outside."""
        if self.enqueued.pop(job_id, None) is None:
            self.dequeued.append(job_id)

    def release(self, job: Job) -> None:
        """The job's lease ended; there is nothing left to cancel."""
        self.cancel.pop(job.id, None)
        self.blocked.pop(job.id, None)
        if job.lease is not None:
            self.released.append((job.id, job.lease, job.worker or ""))

    def freeze(self) -> Changes:
        """What the transaction changed, once nothing is to be added."""
        return Changes(
            tuple(self.runs.values()),
            tuple(self.enqueued.values()),
            tuple(self.released),
            tuple(self.cancel.values()),
            tuple(self.outcomes),
            tuple(self.dequeued),
            tuple(sorted(self.streams)),
            tuple(self.unfit),
            tuple(self.blocked.values()),
            tuple(sorted(self.services)),
        )
