"""Raising an exception in another thread's code, for cancellation and timeouts.

The main thread is interrupted at once, also out of a sleep or a read: a signal runs our handler there,
and the handler raises. Any other thread gets an asynchronous exception, which arrives when it next
executes Python code. Neither may strike while a record is being written or a lock of ours is held: the
frames to be interrupted are looked at first, and if one of them belongs to a module in ``_PROTECTED`` or
to a function marked `uninterrupted`, it is tried again a moment later. Nor does a second `Cancelled` strike
code that deals with the first: what it cleans up, or saves, it may finish within the grace.
"""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports]
import heapq
import os
import signal
import sys
import threading
import time
import traceback
import weakref
from types import FrameType
from typing import Any, Callable, Dict, List, Optional, Set, Type, TypeVar

from farhand.errors import Cancelled

from .forks import on_fork

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

SIGNAL = signal.SIGUSR2
_NUMBER = int(SIGNAL)
_handle: Callable[[int, Any], Any] = _signal.signal  # pyright: ignore[reportUnknownMemberType]
"""Below the standard library's conversions: each run of each job passes here twice."""
UNRULY = (Exception, SystemExit, GeneratorExit)
"""What user code may raise where its objects are only looked at: that says something of them, no more."""

Timer = List[Any]
"""When, a number that orders equals, and the function (None when cancelled)."""

_AGAIN_S = 0.005
CLEANING_S = 0.2
"""So often code that deals with a cancel is looked at again: one that swallowed it meets the next."""
_AGAIN_S_MAX = 1.0
_COMPACT_AT = 1000
_FRAMES_MAX = 12
_PROTECTED = tuple(
    os.path.join(os.path.dirname(__file__), name)
    for name in (
        "spool.py",
        "placing.py",
        "blocking.py",
        "journal.py",
        "checkpoints.py",
        "output.py",
        "blobfiles.py",
        "interrupts.py",
        "keyboard.py",
        "forks.py",
        weakref.__file__,
    )
)
"""What a weak reference calls is among them: an exception that is raised there goes nowhere."""


_uninterrupted: Set[int] = set()


def uninterrupted(function: F) -> F:
    """Mark a function that is never interrupted, nor what it calls: no user code, no long wait."""
    _uninterrupted.add(id(function.__code__))
    return function


class Watcher:
    """One thread that calls functions at given times. Started with the first of them."""

    def __init__(self) -> None:
        self._heap: List[Timer] = []
        self._changed = threading.Condition()
        self._count = 0
        self._cancelled = 0
        self._thread: Optional[threading.Thread] = None
        on_fork(self._forked)

    def after(self, delay_s: float, function: Callable[[], None]) -> Timer:
        """Call ``function`` in ``delay_s`` seconds, unless the timer is given to `cancel` before."""
        with self._changed:
            self._count += 1
            timer: Timer = [time.monotonic() + delay_s, self._count, function]
            heapq.heappush(self._heap, timer)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="farhand-watcher", daemon=True)
                self._thread.start()
            if self._heap[0] is timer:
                self._changed.notify()
        return timer

    def cancel(self, timer: Timer) -> None:
        """The function is no longer wanted."""
        with self._changed:
            timer[2] = None
            self._cancelled += 1
            if self._cancelled > _COMPACT_AT and self._cancelled * 2 > len(self._heap):
                self._heap = [entry for entry in self._heap if entry[2] is not None]
                heapq.heapify(self._heap)
                self._cancelled = 0

    def _forked(self) -> None:
        self._changed = threading.Condition()
        self._heap, self._thread = [], None

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._heap or self._heap[0][0] > time.monotonic():
                    wait = self._heap[0][0] - time.monotonic() if self._heap else None
                    self._changed.wait(wait)
                function = heapq.heappop(self._heap)[2]
            if function is not None:
                try:
                    function()
                except BaseException:  # noqa: BLE001 - of one timer; the others wait for this very thread
                    traceback.print_exc()


class Interrupter:
    """Interrupts threads of this process. ``raise_in`` is the one verb; windows say when it may act."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._main = threading.main_thread().ident
        self._pending: Optional[Type[BaseException]] = None
        self._cleans = False
        self._wanted: Callable[[], bool] = lambda: False
        self._windows = 0
        self._before: Any = signal.SIG_DFL
        self._kicking = threading.Lock()
        self._looked = False
        self._exposed = False
        self.on_strike: Optional[Callable[[Optional[FrameType]], bool]] = None
        """May raise what is due in the main thread; says whether something still is."""
        self.wakers: Dict[int, Callable[[], None]] = {}
        """Thread → what ends its wait in the kernel, so that it meets the exception it was sent."""

    def open(self) -> None:
        """From here on the main thread may be interrupted. Called in the main thread; nests."""
        if self._windows == 0:
            self._before = _handle(_NUMBER, self._strike)
        self._windows += 1

    def close(self) -> None:
        """The main thread may not be interrupted any more."""
        self._windows -= 1
        if self._windows == 0:
            with self._kicking:  # a signal that nobody handles would end the process
                self._pending = None
                _handle(_NUMBER, self._before if self._before is not None else signal.SIG_DFL)

    def close_all(self) -> None:
        """The end of a run: no window stays open, not even one whose end was itself interrupted."""
        if self._windows:
            self._windows = 1
            self.close()

    def raise_in(self, thread: int, kind: Type[BaseException], wanted: Callable[[], bool]) -> None:
        """Raise ``kind`` in ``thread``, unless ``wanted()`` is false by the time it can be done."""
        if not wanted():
            return
        if thread == self._main:
            self._pending, self._wanted, self._cleans = kind, wanted, False
            self._kick()
        elif is_protected(sys._current_frames().get(thread)):  # pyright: ignore[reportPrivateUsage]
            self._watcher.after(_AGAIN_S, lambda: self.raise_in(thread, kind, wanted))
        elif _cleans_up(kind, _handled_in(thread)):
            self._watcher.after(CLEANING_S, lambda: self.raise_in(thread, kind, wanted))
        else:
            _raise_async(thread, kind)
            self._wake(thread)

    def exposed(self, wait: Callable[..., T], *given: Any) -> T:
        """Wait in the main thread where it may be interrupted, though what called this may not be."""
        self._exposed = True
        try:
            return wait(*given)
        finally:
            self._exposed = False

    def meet(self) -> None:
        """Raise here, in the main thread, what it was sent while it could not be interrupted."""
        if self._pending is not None:
            self._raise_pending(self._pending)

    def rouse(self) -> None:
        """Have the main thread look for signals that it may have overlooked, whatever it waits for."""
        self._looked = False
        self._rouse(_AGAIN_S)

    def _rouse(self, pause_s: float) -> None:
        if not self._looked and self._signalled():
            self._watcher.after(pause_s, lambda: self._rouse(min(pause_s * 2, _AGAIN_S_MAX)))

    def _wake(self, thread: int) -> None:
        waker = self.wakers.get(thread)
        if waker is not None:
            waker()

    def _kick(self) -> None:
        """Signal the main thread until the handler has taken the exception."""
        if self._pending is not None and self._signalled():
            self._watcher.after(CLEANING_S if self._cleans else _AGAIN_S, self._kick)

    def _signalled(self) -> bool:
        """Whether the main thread has been signalled: while a window is open."""
        with self._kicking:
            if not self._windows or self._main is None:
                return False
            signal.pthread_kill(self._main, SIGNAL)
            return True

    def _strike(self, _signal: int, frame: Optional[FrameType]) -> None:
        self._looked = True
        if self.on_strike is not None:
            self._looked = not self.on_strike(frame)
        if self._pending is not None and (self._exposed or not is_protected(frame)):
            self._raise_pending(self._pending)

    def _raise_pending(self, kind: Type[BaseException]) -> None:
        self._cleans = _cleans_up(kind, sys.exc_info()[1])
        if self._cleans:
            return
        self._pending = None
        if self._windows and self._wanted():
            raise kind


def is_interruption(error: BaseException) -> bool:
    """Whether the code that raised it did not fail, but was made to end."""
    if isinstance(error, (Cancelled, KeyboardInterrupt, GeneratorExit)):
        return True
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and isinstance(error, asyncio.CancelledError)


def clear_async(thread: int) -> None:
    """Take back an exception that ``thread`` has been sent and has not met yet."""
    _raise_async(thread, None)


def _raise_async(thread: int, kind: Optional[Type[BaseException]]) -> None:
    import ctypes  # noqa: PLC0415 - scripts that interrupt nothing need not load it

    target = ctypes.py_object(kind) if kind is not None else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), target)


def _cleans_up(kind: Type[BaseException], handled: Optional[BaseException]) -> bool:
    """Whether code that handles an exception does so on the way out of an earlier `Cancelled`."""
    if not issubclass(kind, Cancelled):
        return False
    asyncio = sys.modules.get("asyncio")
    cancels = (Cancelled,) if asyncio is None else (Cancelled, asyncio.CancelledError)
    for _ in range(_FRAMES_MAX):
        if handled is None or isinstance(handled, cancels):
            return handled is not None
        handled = handled.__context__
    return False


def _handled_in(thread: int) -> Optional[BaseException]:
    """What a thread's code is handling, from Python 3.10 on: before, nothing tells."""
    current: Any = getattr(sys, "_current_exceptions", dict)
    found = current().get(thread)
    return found[1] if isinstance(found, tuple) else found


def is_protected(frame: Optional[FrameType]) -> bool:
    for _ in range(_FRAMES_MAX):
        if frame is None:
            return False
        if frame.f_code.co_filename in _PROTECTED or id(frame.f_code) in _uninterrupted:
            return True
        frame = frame.f_back
    return False


watcher = Watcher()
interrupter = Interrupter(watcher)
"""The signal handler and its thread belong to the process, not to a run."""
