"""The blobs that a run's records name: what a worker that holds a job of the run may read.

They are noted in the transaction that records what names them: parameters, the arguments of a placed call,
outcomes, saved files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..model import SERVICE, Json
from .database import Database
from .guard import Connection
from .moves import holds, load_job

MARK = "sha256:"
"""Every digest begins with it."""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class RunBlobs:
    """Says who may read what."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def may_read(self, job_id: str, lease: int, digest: str) -> bool:
        """Whether ``lease`` is the job's current one, and the job's code or its run's records need the blob.

        The records of the run that this one retries count too: their outcomes may have been taken over.
        """

        def read(connection: Connection) -> bool:
            job = load_job(connection, job_id)
            if job is None or not holds(job, lease):
                return False
            if digest in (job.bundle, job.fingerprint) or _is_named(connection, job.run, digest):
                return True
            return job.kind == SERVICE and job.args.get("weights") == digest

        return await self._database.read(read)


def digests_in(text: str) -> set[str]:
    """The digests that stand in a text."""
    return set(_DIGEST.findall(text)) if MARK in text else set()


def digests_of(value: Json | None) -> set[str]:
    """The digests in a Value: of its content, or of saved files that its text refers to."""
    if value is None:
        return set()
    return digests_in(str(value.get("digest") or value.get("text", "")))


def name_blobs(connection: Connection, run: str, digests: Iterable[str]) -> None:
    """Note that records of a run name these."""
    connection.executemany(
        "INSERT INTO run_blobs (run, digest) VALUES (?, ?) ON CONFLICT (run, digest) DO NOTHING",
        [(run, digest) for digest in digests],
    )


def _is_named(connection: Connection, run: str | None, digest: str) -> bool:
    while run is not None:
        if connection.execute(
            "SELECT 1 FROM run_blobs WHERE run = ? AND digest = ?", (run, digest)
        ).fetchone():
            return True
        row = connection.execute("SELECT retry_of FROM runs WHERE id = ?", (run,)).fetchone()
        run = None if row is None else row[0]
    return False
