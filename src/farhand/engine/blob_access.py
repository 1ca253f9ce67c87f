"""Which blobs a worker may read and write: what its jobs need, under leases that are current."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import NotYourArtifact
from ..store.run_blobs import RunBlobs
from .fleet import Fleet
from .importchecks import ImportChecks
from .reports import Reports

CHECKOUT = "checkout"
"""In place of a job's id: for the manifests that a worker compares its checkout with."""


@dataclass(frozen=True, slots=True)
class Claim:
    """In whose name a worker asks for a blob: a job that it holds, and the lease it holds it by."""

    job: str | None
    lease: int | None


class BlobAccess:
    """Checks the claims of workers; each method raises `NotYourArtifact`."""

    def __init__(self, reports: Reports, run_blobs: RunBlobs, fleet: Fleet, imports: ImportChecks) -> None:
        self._reports = reports
        self._run_blobs = run_blobs
        self._fleet = fleet
        self._imports = imports

    async def check_write(self, worker: str, claim: Claim) -> str:
        """The worker holds the job that it sends a blob for; returns the job."""
        job, lease = self._held(worker, claim)
        if not await self._reports.is_current(job, lease, worker):
            raise NotYourArtifact("the lease of this request is not current; whoever sends it must stop")
        return job

    async def check_read(self, worker: str, claim: Claim, digest: str) -> None:
        """The worker holds a job that the blob belongs to."""
        if claim.job == CHECKOUT and digest in self._fleet.member(worker).compared:
            return  # a manifest that the server asked it to compare its checkout with
        job, lease = self._held(worker, claim)
        if self._is_needed(job, lease, digest):
            return
        if self._imports.owns(job):
            allowed = self._imports.may_read(job, lease, digest, worker)
        else:
            allowed = await self._run_blobs.may_read(job, lease, digest)
        if not allowed:
            raise NotYourArtifact(f"no job that {worker} holds by a current lease has to do with {digest}")

    def _is_needed(self, job: str, lease: int, digest: str) -> bool:
        """Whether it is what every attempt of the job asks for first, so that nobody need look further."""
        held = self._fleet.holder(job)
        if held is None or held[1].lease != lease:
            return False
        needs = held[1].job
        return digest in (needs.bundle, needs.fingerprint, needs.args.get("digest"))

    def _held(self, worker: str, claim: Claim) -> tuple[str, int]:
        if claim.job is None or claim.lease is None:
            raise NotYourArtifact("a worker names its job and lease: Farhand-Job, Farhand-Lease")
        held = self._fleet.holder(claim.job)
        if held is not None and held[0].name != worker:
            raise NotYourArtifact("another worker holds that job")
        return claim.job, claim.lease
