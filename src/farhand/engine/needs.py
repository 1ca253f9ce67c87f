"""What a job asks for while it runs: secrets it declares, variables, services, and streams of its run."""

from __future__ import annotations

import json
import time
from typing import Any

from ..errors import StaleLease
from ..store import Store
from .hosting import Hosting
from .secrets import Secrets
from .streams import Asked, Streams
from .variables import Variables


class Needs:
    """Answers jobs. Only the worker that holds the job's current lease is answered."""

    def __init__(
        self, store: Store, secrets: Secrets, variables: Variables, hosting: Hosting, streams: Streams
    ) -> None:
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

    async def stream(self, job_id: str, args: dict[str, Any], wait_s: float) -> dict[str, Any]:
        """What there is of a stream of the job's run. Raises KeyError, ValueError, `NotFound`."""
        return await self._streams.read(job_id, Asked.read(args), wait_s)

    async def variable(self, name: str) -> dict[str, Any]:
        """The value of a variable. Raises `NotFound`."""
        return {"value": json.loads((await self._variables.get(name)).value)}
