"""A job that waits for placed calls alone is blocked: it gives its slot back, and goes on when it is told to.

Every thread of the job that waits for a call says so here. When the body and all calls that run in this
process have waited for a moment, and a placed call is open, the engine reports `blocked`. The next outcome is
held back, the engine reports `unblocked`, and what was held back is let through at the server's `proceed`.

Code that leaves its wait in another way (it was cancelled, or took too long) goes on at once, to clean up.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional

from . import events
from .futures import Arrival
from .interrupts import Timer, watcher

if TYPE_CHECKING:
    from .channel import Channel
    from .context import Run

AFTER_S = 0.05
"""So long all has to wait before the slot is given back: a call that is quick costs nothing."""


class Blocking:
    """Whether one job is blocked. ``has_open`` says whether a placed call is under way.

    ``tell`` is told when the job is blocked, and when that is over. What ends a wait may come by ``channel``.
    """

    def __init__(
        self,
        run: Run,
        has_open: Callable[[], bool],
        tell: Callable[[bool], None],
        channel: Optional[Channel] = None,
    ) -> None:
        self._run = run
        self._tell = tell
        self._has_open = has_open
        self._channel = channel
        self._read = None if channel is None else partial(channel.wait, more=has_open)
        self._lock = threading.Lock()
        self._waiting: Dict[int, int] = {}
        self._timer: Optional[Timer] = None
        self._idle_since = 0.0
        self._number = 0
        self._state = ""
        self._held_back: List[Callable[[], None]] = []
        self._gates: List[Any] = []

    def began(self, beside: int = 0) -> Optional[Callable[[Arrival, Optional[float]], bool]]:
        """This thread waits for a call from now on, and for so many others that work for it.

        While something is to come from elsewhere, the main thread reads as it waits.
        """
        thread = threading.get_ident()
        with self._lock:
            self._waiting[thread] = beside
            self._expect()
        if thread == self._run.main_thread:
            return self._read if self._has_open() else None
        self.listen()
        return None

    def listen(self) -> None:
        """Have somebody read, if there is something to come."""
        if self._channel is not None and self._has_open():
            self._channel.listen()

    def ended(self) -> Optional[Any]:
        """This thread has what it waited for; a lock to pass first, if it has to wait for its slot."""
        with self._lock:
            self._leave()
            if not self._state:
                return None
            gate = threading.Lock()
            gate.acquire()
            self._gates.append(gate)
            return gate

    def rested(self) -> None:
        """A thread of the pool has ended a call, or something came of an answer that nobody waited for.

        Those that wait may now be all there are, though none of them has just begun to.
        """
        if self._waiting and self._timer is None and not self._state and self._has_open():
            with self._lock:
                self._expect()

    def left(self) -> None:
        """This thread gave up waiting."""
        with self._lock:
            self._leave()

    def deliver(self, settle: Callable[[], None]) -> None:
        """Let an outcome through, now or when the job may go on."""
        with self._lock:
            if self._state:
                self._held_back.append(settle)
                self._unblock()
                return
        settle()

    def proceed(self, number: int) -> None:
        """The job has its slot again."""
        with self._lock:
            if number != self._number or self._state != "unblocked":
                return
            self._turn_to("")
            held_back, self._held_back = self._held_back, []
            gates, self._gates = self._gates, []
        for settle in held_back:
            settle()
        for gate in gates:
            gate.release()
        self.rested()

    # ------------------------------------------------------------ inside

    def _leave(self) -> None:
        self._waiting.pop(threading.get_ident(), None)
        self._unblock()

    def _expect(self) -> None:
        """Look in a moment whether nothing has gone on since now."""
        if not self._state and self._is_idle():
            self._idle_since = time.monotonic()
            if self._timer is None:
                self._timer = watcher.after(AFTER_S, self._look)

    def _look(self) -> None:
        """The timer goes on while waits come and go: setting one for each would cost more than the wait."""
        with self._lock:
            self._timer = None
            if self._state or self._run.cancelled is not None or not self._is_idle():
                return
            rest_s = self._idle_since + AFTER_S - time.monotonic()
            if rest_s > 0:
                self._timer = watcher.after(rest_s, self._look)
                return
            self._number += 1
            self._turn_to("blocked")
            self._report("blocked")

    def _unblock(self) -> None:
        if self._state == "blocked":
            self._turn_to("unblocked")
            self._report("unblocked")

    def _turn_to(self, state: str) -> None:
        """Be in another state. Neither the wait for calls nor that for the slot is silence."""
        self._state = state
        if self._run.blocked and not state:
            self._run.heard()
        if self._run.blocked != bool(state):
            self._run.blocked = bool(state)
            self._tell(self._run.blocked)

    def _is_idle(self) -> bool:
        """Whether nothing goes on here: neither the body nor a call, and no call could begin."""
        threads = {self._run.main_thread, *self._run.pool.running}
        waiting = self._waiting.keys()
        if not threads <= waiting or self._run.pool.can_begin or not self._has_open():
            return False
        return sum(self._waiting.values()) <= len(waiting - threads)

    def _report(self, kind: str) -> None:
        body = {"at": time.time(), "n": self._number}
        self._run.recorder.write(events.line(kind, body), urgent=True)
        self.listen()
