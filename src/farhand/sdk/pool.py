"""The threads that run the calls of one run.

A second thread helps only where calls wait for something: two that compute take turns, and each turn costs
more than a short call. So a thread more is started when a look at the queue, a moment later, finds that the
calls take their time; how many decides `wanted`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Deque, List, NamedTuple, Optional, Set

from farhand.errors import Cancelled

from .futures import POOL_THREAD, Arrival, Future, acquired
from .interrupts import Timer, uninterrupted, watcher

if TYPE_CHECKING:
    from .futures import Waits

THREADS_MAX = 16
LOOK_S = 0.001
_LOOK_S_MAX = 0.008
_BRISK_S = 0.0002
_LATE_S = 0.0005
_STOOD_S = 0.05


class Look(NamedTuple):
    """What was seen in ``elapsed_s``: calls ``taken`` up by ``threads``, and the process's own time.

    ``late``: the look itself had to wait for the interpreter. ``stood_s``: so long no call was taken up.
    """

    threads: int
    taken: int
    elapsed_s: float
    cpu_s: float
    late: bool
    stood_s: float

    @property
    def computes(self) -> bool:
        """Whether what goes on is computed, rather than waited for."""
        return self.cpu_s * 2 > self.elapsed_s

    @property
    def slow(self) -> bool:
        """Whether calls take long enough for a thread more to be worth its turns."""
        return self.elapsed_s * self.threads > self.taken * _BRISK_S


def wanted(look: Look, room: int) -> int:
    """How many threads are to be started, of ``room`` that would have something to do."""
    if not look.taken:
        return room if not (look.late and look.computes) or look.stood_s > _STOOD_S else 0
    return min(room, look.threads) if look.slow and not look.computes else 0


class Pool:
    """Threads for the calls of one run. They start as calls need them, and end with the run."""

    def __init__(self, threads_max: int = THREADS_MAX) -> None:
        self._threads_max = threads_max
        self._queue: Deque[Entry] = deque()
        self._lock = threading.RLock()
        self._changed: Optional[threading.Condition] = None
        """There with the first thread."""
        self._idle = 0
        self._threads: Set[threading.Thread] = set()
        self._unfinished = 0
        self._closed = False
        self.running: Set[int] = set()
        self._failed: List[Future[Any]] = []
        self._waiters: List[Callable[[], None]] = []
        self.waits: Optional[Waits] = None
        self._timer: Optional[Timer] = None
        self._look_s = LOOK_S
        self._looked_at = 0.0
        self._cpu_s = 0.0
        self._taken = 0
        self._stood_s = 0.0

    @property
    def can_begin(self) -> bool:
        """Whether a call waits for a thread that there is, or could be."""
        return bool(self._queue) and (self._idle > 0 or len(self._threads) < self._threads_max)

    @uninterrupted
    def submit(self, function: Callable[[], None], future: Future[Any], waits: bool = False) -> None:
        """Run ``function``, which settles ``future``, on a thread; ``waits``: it is known to wait."""
        entry = Entry(self, function, future)
        with self._lock:
            self.track(future)
            self._queue.append(entry)
            future.run = entry.run
            if self._idle:
                self._idle -= 1
                self._condition().notify()
            elif len(self._threads) < self._threads_max:
                if waits or not self._threads:
                    self._start_thread()
                    if not self._threads:
                        self._queue.remove(entry)
                        future.settle(error=RuntimeError("no thread can be started for this call"))
                elif self._timer is None:
                    self._look_in(LOOK_S)

    @uninterrupted
    def track(self, future: Future[Any]) -> None:
        """Count a call, which may run elsewhere, until it has ended."""
        with self._lock:
            if self._closed:
                raise Cancelled("the run has ended")
            if future.keeper is not None:
                return
            self._unfinished += 1
            future.waits = self.waits
        future.kept_by(self)

    @uninterrupted
    def give_up_a_thread(self) -> None:
        """A call does not return: its thread no longer counts."""
        with self._lock:
            self._threads_max += 1
            if self._queue:
                self._start_thread()

    @uninterrupted
    def drop_waiting(self, error: BaseException) -> None:
        """End every call that has not begun."""
        with self._lock:
            waiting = list(self._queue)
        for entry in waiting:
            if entry.claim():
                entry.future.settle(error=error)

    def wait(self, timeout_s: Optional[float] = None) -> bool:
        """Wait until every call has ended; False when some have not after ``timeout_s``."""
        return self._unfinished <= 0 or acquired(self._waiter(), timeout_s, self.waits)

    def _waiter(self) -> Arrival:
        """What comes once every call has ended."""
        waiter = Arrival()
        self.when_idle(waiter.release)
        return waiter

    @uninterrupted
    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once every call has ended; at once if they all have."""
        with self._lock:
            if self._unfinished > 0:
                self._waiters.append(callback)
                return
        callback()

    @uninterrupted
    def close(self) -> None:
        """End the idle threads."""
        with self._lock:
            self._closed = True
            if self._changed is not None:
                self._changed.notify_all()
            threads = list(self._threads)
            timer, self._timer = self._timer, None
        if timer is not None:
            watcher.cancel(timer)
        if self._unfinished <= 0:
            for thread in threads:
                thread.join(1.0)

    @uninterrupted
    def unseen_failures(self) -> List[Future[Any]]:
        """Calls that failed and whose result nobody has asked for."""
        return [future for future in self._failed if not future.seen]

    @uninterrupted
    def finished(self, future: Future[Any]) -> None:
        """A call that was counted has ended."""
        with self._lock:
            if future.failed:
                self._failed.append(future)
            self._unfinished -= 1
            if self._unfinished <= 0:
                while self._waiters:
                    self._waiters.pop()()

    # ------------------------------------------------------------ threads

    def _condition(self) -> threading.Condition:
        """That there is something new for a thread; called with the lock held."""
        if self._changed is None:
            self._changed = threading.Condition(self._lock)
        return self._changed

    def _start_thread(self) -> None:
        name = f"{POOL_THREAD}{len(self._threads) + 1}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError:  # the system allows no other: those that there are do all of it
            self._threads.discard(thread)

    def _work(self) -> None:
        try:
            self._take_calls()
        except Cancelled:  # meant for a call that had ended by then
            self._replace()

    @uninterrupted
    def _replace(self) -> None:
        """This thread is struck, and what it was woken for waits for another."""
        with self._lock:
            self._threads.discard(threading.current_thread())
            if self._queue and not self._closed:
                self._start_thread()

    def _take_calls(self) -> None:
        while True:
            with self._lock:
                while not self._queue:
                    if self._closed:
                        self._threads.discard(threading.current_thread())
                        return
                    self._idle += 1
                    self._condition().wait()
                entry = self._queue.popleft()
                self._taken += 1
            entry.run()

    def _look_in(self, delay_s: float) -> None:
        self._look_s = delay_s
        self._looked_at = time.monotonic()
        self._cpu_s = time.process_time()
        self._taken = 0
        self._timer = watcher.after(delay_s, self._look)

    @uninterrupted
    def _look(self) -> None:
        """Start the threads that are wanted, and look again while calls wait for one."""
        with self._lock:
            self._timer = None
            room = min(len(self._queue), self._threads_max - len(self._threads))
            if room <= 0 or self._closed:
                self._stood_s = 0.0
                return
            look = self._seen()
            self._stood_s = look.stood_s
            more = wanted(look, room)
            for _ in range(more):
                self._start_thread()
            self._look_in(LOOK_S if more or look.stood_s else min(self._look_s * 2, _LOOK_S_MAX))

    def _seen(self) -> Look:
        elapsed_s = time.monotonic() - self._looked_at
        cpu_s = time.process_time() - self._cpu_s
        late = elapsed_s > self._look_s + _LATE_S
        stood_s = 0.0 if self._taken else self._stood_s + elapsed_s
        return Look(len(self._threads), self._taken, elapsed_s, cpu_s, late, stood_s)


class Entry:
    """A call in the pool's queue; whoever claims it runs it."""

    __slots__ = ("_claimed", "_function", "_pool", "future")

    def __init__(self, pool: Pool, function: Callable[[], None], future: Future[Any]) -> None:
        self._pool = pool
        self._function = function
        self._claimed = False
        self.future = future

    @uninterrupted
    def claim(self) -> bool:
        """Whether it is the caller's to run, which is said once."""
        with _claiming:
            claimed, self._claimed = self._claimed, True
            return not claimed

    def run(self) -> None:
        """Run it here, unless somebody has begun."""
        if not self.claim():
            return
        thread = threading.get_ident()
        nested = thread in self._pool.running
        self._pool.running.add(thread)
        try:
            self._function()
        except BaseException as stray:  # noqa: BLE001 - an interruption that came as the call was ending
            self.future.settle(error=stray)
        finally:
            if not nested:
                self._pool.running.discard(thread)
                if self._pool.waits is not None:
                    self._pool.waits.rested()


_claiming = threading.Lock()
