"""Workers as people look at them: what the store remembers, brought up to date by what is attached now."""

from __future__ import annotations

import time
from dataclasses import replace

from ..errors import NotFound
from ..model import Worker
from ..store import Store
from .fleet import AWAITED, LOST, Fleet


class Workers:
    """Every worker that ever attached."""

    def __init__(self, store: Store, fleet: Fleet) -> None:
        self._store = store
        self._fleet = fleet

    async def list(self) -> list[Worker]:
        """Every worker, by name."""
        return [self._live(worker) for worker in await self._store.workers.list()]

    async def get(self, name: str) -> Worker:
        """The worker of that name. Raises `NotFound`."""
        worker = await self._store.workers.get(name)
        if worker is None:
            raise NotFound(f"there is no worker {name!r}; `farhand workers list` shows them")
        return self._live(worker)

    def _live(self, worker: Worker) -> Worker:
        """The worker with its state and last sign of life as this server knows them."""
        member = self._fleet.get(worker.name)
        if member is None:
            return worker
        state = LOST if member.state == AWAITED else member.state
        if member.heard_at is None:
            return replace(worker, state=state)
        return replace(worker, state=state, last_seen_at=time.time() - (time.monotonic() - member.heard_at))
