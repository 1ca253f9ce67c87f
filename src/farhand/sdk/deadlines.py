"""Timeouts of calls.

At its deadline a call gets `TimedOut` where it stands. One that has not ended ``grace_s`` later (it sits
in code that Python cannot interrupt) is abandoned: its outcome is recorded without it, and whatever it
returns in the end is dropped.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, Optional, TypeVar

from farhand.errors import TimedOut

from .interrupts import clear_async, interrupter, uninterrupted, watcher

T = TypeVar("T")


class Abandoned(BaseException):
    """This call was given up and recorded while it still ran; nothing of it counts any more."""


class Deadline:
    """The limit of one call on the current thread. Deadlines of nested calls do not take each other's.

    It strikes ``later_s`` after the timeout, for work that keeps the time itself unless it is stuck.
    """

    def __init__(self, name: str, timeout_s: float, later_s: float = 0.0) -> None:
        self.fired = False
        self.abandoned = False
        self._message = f"{name} took longer than its timeout of {timeout_s:g} s"
        self._timeout_s = timeout_s + later_s
        self._thread = threading.get_ident()
        self._main = threading.current_thread() is threading.main_thread()
        self._closed = False
        self._lock = threading.Lock()
        self._kind = type("TimedOut", (TimedOut,), {"deadline": self, "__doc__": self._message})

    def run(
        self, function: Callable[[], T], grace_s: float, give_up: Optional[Callable[[TimedOut], None]]
    ) -> T:
        """``function()``, or `TimedOut`. ``give_up`` is called if the call does not end in time."""
        if self._main:
            interrupter.open()
        timer = watcher.after(self._timeout_s, lambda: self._fire(grace_s, give_up))
        try:
            try:
                value = function()
            finally:
                self._close()
                watcher.cancel(timer)
        except TimedOut as error:
            if getattr(error, "deadline", None) is not self:
                raise
            self._close()
        else:
            if not self.fired:
                return value
        finally:
            if self._main:
                interrupter.close()
        if self.abandoned:
            raise Abandoned
        raise TimedOut(self._message)

    def _fire(self, grace_s: float, give_up: Optional[Callable[[TimedOut], None]]) -> None:
        with self._lock:
            if self._closed:
                return
            self.fired = True
        interrupter.raise_in(self._thread, self._kind, lambda: not self._closed)
        if give_up is not None:
            watcher.after(grace_s, lambda: self._abandon(give_up))

    def _abandon(self, give_up: Callable[[TimedOut], None]) -> None:
        with self._lock:
            if self._closed:
                return
            self.abandoned = True
        give_up(TimedOut(self._message))

    @uninterrupted
    def _close(self) -> None:
        with self._lock:
            self._closed = True
        if self.fired and not self._main:
            clear_async(self._thread)


def is_of_an_outer_call(error: Any) -> bool:
    """Whether a `TimedOut` on its way up belongs to the deadline of a caller."""
    return getattr(error, "deadline", None) is not None
