"""A background loop with two verbs: ``start`` and ``stop``. Stopping is idempotent and legal before start."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

log = logging.getLogger("farhand")


class Service:
    """Runs ``_work`` until stopped. A loop that fails says so and is started again."""

    name = "service"
    _restart_s = 1.0

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; does nothing while it is under way."""
        if self._task is None:
            self._task = asyncio.create_task(self._keep_working(), name=self.name)

    async def stop(self) -> None:
        """End, and wait for the end."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _work(self) -> None:
        raise AssertionError("a service has work")

    async def _keep_working(self) -> None:
        while True:
            try:
                await self._work()
            except Exception:
                log.exception("%s failed; it goes on in %s s", self.name, self._restart_s)
                await asyncio.sleep(self._restart_s)


class Wakeup:
    """An event that a loop waits for, with or without a time limit."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    @property
    def is_set(self) -> bool:
        """Whether somebody is to be woken and was not yet."""
        return self._event.is_set()

    def set(self) -> None:
        """Wake whoever waits, or the next who does."""
        self._event.set()

    async def wait(self, timeout_s: float | None = None) -> None:
        """Return when woken, or after ``timeout_s``."""
        try:
            await asyncio.wait_for(self._event.wait(), timeout_s)
        except TimeoutError:
            return
        finally:
            self._event.clear()


def delay_until(moment: float | None, clock: Callable[[], float]) -> float | None:
    """Seconds from now to ``moment`` on ``clock``; None waits for ever."""
    return None if moment is None else max(0.0, moment - clock())
