"""What happens to workers, told once each: to the event log, and to whoever watches."""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import Any

from ..errors import FarhandError
from ..model import Event
from ..store import Store
from .bus import Bus, Notice

log = logging.getLogger("farhand")


class WorkerEvents:
    """Tells ``worker.attached``, lost, offline, draining, drained, resumed, refused; ``told`` counts."""

    def __init__(self, store: Store, bus: Bus) -> None:
        self._store = store
        self._bus = bus
        self._refused: dict[str, str] = {}
        self.told: Counter[str] = Counter()

    async def tell(self, what: str, worker: str, message: str, **details: Any) -> None:
        """Record and publish ``worker.WHAT``. A store that takes nothing holds nobody up."""
        now, kind = time.time(), f"worker.{what}"
        self.told[what] += 1
        try:
            await self._store.events.add(now, kind, message, worker=worker, details=details)
        except FarhandError as error:
            log.error("that %s could not be stored: %s", message, error)
        self._bus.publish(Notice("event", record=Event(0, now, kind, message, None, worker, details)))
        self._bus.publish(Notice("worker", record=worker))

    def changed(self, worker: str) -> None:
        """Something about a worker is new that is worth a look and no event."""
        self._bus.publish(Notice("worker", record=worker))

    async def refused(self, worker: str, code: str, message: str, address: str, instance: str = "") -> None:
        """Somebody was not let in under that name; told once, however often the same one tries again."""
        who = f"{instance or address} {code}"
        if self._refused.get(worker) == who:
            return
        self._refused[worker] = who
        log.warning("worker %s is refused: %s", worker, message)
        await self.tell("refused", worker, f"{worker} is refused: {message}", code=code, address=address)

    def welcomed(self, worker: str) -> None:
        """The next refusal under that name is a new one."""
        self._refused.pop(worker, None)
