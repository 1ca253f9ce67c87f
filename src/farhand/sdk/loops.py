"""The event loop of an ``async def`` body, which says when there is nothing that it could do.

A loop waits when it sleeps in its selector with no timer, no socket or pipe of its own, and nothing on an
executor that does not wait itself: then only another thread can wake it, with the outcome of a call. That is
to it what waiting for a call is to plain code, so its job can be blocked (see `blocking`).
"""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any, Callable, Coroutine, List, Optional, Tuple, TypeVar

if TYPE_CHECKING:
    from .context import Run
    from .futures import Waits

T = TypeVar("T")
Events = List[Tuple[selectors.SelectorKey, int]]

_OWN_FILES = 1
"""A loop has registered the socket by which other threads wake it."""


class _Selector(selectors.DefaultSelector):
    """Tells ``waits`` of a select that has no end of its own."""

    def __init__(self, run: Run, waits: Waits) -> None:
        super().__init__()
        self._run = run
        self._waits = waits
        self.executing = 0

    def select(self, timeout: Optional[float] = None) -> Events:
        """The files that are ready, after a wait for a slot if the job was blocked meanwhile."""
        if timeout is not None or len(self.get_map()) > _OWN_FILES:
            return super().select(timeout)
        waits = self._waits
        try:
            waits.began(beside=self.executing)
            ready = super().select(timeout)
            if self._run.hurried or self._run.cancelled is not None:
                self._run.hurried = False
                waits.left()  # it is to clean up, and does not wait for its slot
                return ready
            gate = waits.ended()
            if gate is not None:
                gate.acquire()
        except BaseException:  # an interruption too: nobody waits any more
            waits.left()
            raise
        return ready


class _Loop(asyncio.SelectorEventLoop):
    """Knows how much of its work is on an executor."""

    def __init__(self, selector: _Selector) -> None:
        super().__init__(selector)
        self._watching = selector

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        """As the standard library's, counted until it has ended."""
        future = super().run_in_executor(executor, func, *args)
        self._watching.executing += 1
        future.add_done_callback(self._executed)
        return future

    def _executed(self, _: Any) -> None:
        self._watching.executing -= 1


def run(coroutine: Coroutine[Any, Any, T], of: Run) -> T:
    """The coroutine's value, on a loop of its own. A loop that is not the standard library's says nothing."""
    waits = of.pool.waits
    if waits is None or not _is_standard():
        return asyncio.run(coroutine)
    loop = _Loop(_Selector(of, waits))
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(coroutine)
    finally:
        try:
            _end_tasks(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            asyncio.set_event_loop(None)
            loop.close()


def _is_standard() -> bool:
    loop = asyncio.new_event_loop()
    loop.close()
    return type(loop) is asyncio.SelectorEventLoop


def _end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
