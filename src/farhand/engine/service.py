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
            except asyncio.CancelledError:
                if _is_cancelled():
                    raise
                log.exception("%s waited for what was cancelled", self.name)
            except Exception:
                log.exception("%s failed; it goes on in %s s", self.name, self._restart_s)
            await asyncio.sleep(self._restart_s)


def _is_cancelled() -> bool:
    """Whether this very task is to end, and not only something that it waited for."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


class Wakeup:
    """An event that a loop waits for, with or without a time limit."""

    def __init__(self) -> None:
        self.is_set = False
        """Whether somebody is to be woken and was not yet."""
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wake whoever waits, or the next who does."""
        self.is_set = True
        if self._waiter is not None:
            _end(self._waiter)

    async def wait(self, timeout_s: float | None = None) -> None:
        """Return when woken, or after ``timeout_s``. One loop waits at a time."""
        if not self.is_set:
            loop = asyncio.get_running_loop()
            self._waiter = waiter = loop.create_future()
            timer = None if timeout_s is None else loop.call_later(timeout_s, _end, waiter)
            try:
                await waiter
            finally:
                self._waiter = None
                if timer is not None:
                    timer.cancel()
        self.is_set = False


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def delay_until(moment: float | None, clock: Callable[[], float]) -> float | None:
    """Seconds from now to ``moment`` on ``clock``; None waits for ever."""
    return None if moment is None else max(0.0, moment - clock())
