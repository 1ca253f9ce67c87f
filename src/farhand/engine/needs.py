"""What a job asks for while it runs: secrets it declares, and variables."""

from __future__ import annotations

import json
import time
from typing import Any

from ..errors import StaleLease
from ..store import Store
from .secrets import Secrets
from .variables import Variables


class Needs:
    """Answers jobs. Only the worker that holds the job's current lease is answered."""

    def __init__(self, store: Store, secrets: Secrets, variables: Variables) -> None:
        self._store = store
        self._secrets = secrets
        self._variables = variables

    async def secret(self, worker: str, job_id: str, lease: int, name: str) -> dict[str, Any]:
        """The value of a secret that the job declares. Raises `StaleLease`, and what `Secrets.read` does."""
        job = await self._store.jobs.get(job_id)
        if job is None or (job.worker, job.lease) != (worker, lease):
            raise StaleLease
        return {"value": await self._secrets.read(name, job, time.time())}

    async def variable(self, name: str) -> dict[str, Any]:
        """The value of a variable. Raises `NotFound`."""
        return {"value": json.loads((await self._variables.get(name)).value)}
