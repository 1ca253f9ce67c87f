"""What a job asks for while it runs: secrets it declares, variables, services, and streams of its run."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

from farhand_worker import protocol

from ..blobs import Blobs
from ..blobs.laid import FOREIGN, Own
from ..errors import StaleLease
from ..model import LOCAL_WORKER
from ..store import Store
from .hosting import Hosting
from .secrets import Secrets
from .streams import Asked, Streams
from .variables import Variables


class Needs:
    """Answers jobs. Only the worker that holds the job's current lease is answered."""

    def __init__(
        self,
        store: Store,
        secrets: Secrets,
        variables: Variables,
        hosting: Hosting,
        streams: Streams,
        blobs: Blobs,
    ) -> None:
        self._blobs = blobs
        self._streams = streams
        self._hosting = hosting
        self._store = store
        self._secrets = secrets
        self._variables = variables

    async def secret(self, worker: str, job_id: str, lease: int, name: str) -> dict[str, Any]:
        """The value of a secret that the job declares. Raises `StaleLease`, and what `Secrets.read` does."""
        job = await self._store.jobs.get(job_id)
        if job is None or (job.worker, job.lease) != (worker, lease):
            raise StaleLease
        return {"value": await self._secrets.read(name, job, time.time())}

    async def service(self, name: str, wait_s: float) -> dict[str, Any]:
        """How a service is, and where when it is healthy; waited for at most so long. Raises `NotFound`."""
        status = await self._hosting.settled(name, wait_s)
        told = {field: getattr(status.service, field) for field in ("state", "reason", "message")}
        return told | {"url": status.url}

    async def laid(self, worker: str, args: dict[str, Any]) -> dict[str, Any]:
        """Whether the file that a worker has laid beside its blob's place is the blob now; else ask again.

        Raises KeyError, ValueError, and what `Laid.settle` does.
        """
        own = Own(2, bool(args.get("hashed"))) if worker == LOCAL_WORKER else FOREIGN
        digest, token, size = str(args["digest"]), str(args["token"]), int(args["size"])
        return {"settled": await self._blobs.take_laid(digest, token, size, own)}

    def seen(self, outcome: protocol.Outcome) -> protocol.Outcome:
        """An outcome as it is told beside the server, where the file of its value is read as it lies here."""
        digest = (outcome.body.get("value") or {}).get("digest")
        seen = None if digest is None else self._blobs.seen(digest)
        return outcome if seen is None else replace(outcome, seen=seen)

    async def stream(self, job_id: str, args: dict[str, Any], wait_s: float) -> dict[str, Any]:
        """What there is of a stream of the job's run. Raises KeyError, ValueError, `NotFound`."""
        return await self._streams.read(job_id, Asked.read(args), wait_s)

    async def variable(self, name: str) -> dict[str, Any]:
        """The value of a variable. Raises `NotFound`."""
        return {"value": json.loads((await self._variables.get(name)).value)}
