"""Futures of calls, and the threads that run them."""

from __future__ import annotations

import threading
from collections import deque
from typing import (
    Any,
    Callable,
    Deque,
    Dict,
    Generic,
    Iterable,
    Iterator,
    List,
    Optional,
    Set,
    Tuple,
    TypeVar,
)

from farhand.errors import Cancelled

from .interrupts import uninterrupted

T = TypeVar("T")

THREADS_MAX = 16
_PREFIX = "farhand-call-"
_UNSET: Any = object()
_SCALARS = frozenset({type(None), bool, int, float, str, bytes})


class Future(Generic[T]):
    """A call that was submitted. Pass it to other calls, or ask for its ``result()``."""

    __slots__ = (
        "__weakref__",
        "_callbacks",
        "_done",
        "_error",
        "_run",
        "_value",
        "index",
        "key",
        "name",
        "seen",
    )

    def __init__(self, key: str, name: str, index: Optional[int] = None) -> None:
        self.key = key
        self.name = name
        self.index = index
        self._value: Any = _UNSET
        self._error: Optional[BaseException] = None
        self.seen = False
        self._callbacks: List[Callable[[], None]] = []
        self._run: Optional[Callable[[], None]] = None

    def done(self) -> bool:
        """Whether the call has ended, in whatever way."""
        return self._value is not _UNSET or self._error is not None

    @property
    def failed(self) -> bool:
        """Whether the call has ended with an exception."""
        return self._error is not None

    @property
    def error(self) -> Optional[BaseException]:
        """That exception, without counting as a look at it."""
        return self._error

    def result(self, timeout: Optional[float] = None) -> T:
        """Wait for the call's value; raises its exception, or TimeoutError after ``timeout`` seconds."""
        if not self.done():
            self._wait(timeout)
        self.seen = True
        if self._error is not None:
            raise self._error
        return self._value

    def exception(self, timeout: Optional[float] = None) -> Optional[BaseException]:
        """Wait for the call's exception; None when it returned."""
        if not self.done():
            self._wait(timeout)
        self.seen = True
        return self._error

    def _wait(self, timeout: Optional[float]) -> None:
        if threading.current_thread().name.startswith(_PREFIX) and self._run is not None:
            self._run()  # a thread of the pool never waits for a call that waits for a thread
            if self.done():
                return
        arrived = threading.Lock()  # of this one waiter, so that interrupting it leaves nobody else behind
        arrived.acquire()
        self.when_done(arrived.release)
        if not arrived.acquire(timeout=-1 if timeout is None else timeout):
            raise TimeoutError(f"{self.name} has not ended within {timeout} s")

    @uninterrupted
    def settle(self, value: Any = _UNSET, error: Optional[BaseException] = None) -> bool:
        """End the call once; False when it had ended already."""
        with _settling:
            if self.done():
                return False
            if error is not None:
                self._error = error
            else:
                self._value = value
            self._run = None
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
        return True

    @uninterrupted
    def when_done(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once the call has ended; at once if it has."""
        with _settling:
            if not self.done():
                self._callbacks.append(callback)
                return
        callback()

    def __repr__(self) -> str:
        place = "" if self.index is None else f"[{self.index}]"
        return f"<Future of {self.name}{place}, {'done' if self.done() else 'pending'}>"


_settling = threading.RLock()


class Futures(List["Future[T]"]):
    """The calls of one ``.map()``, in the order of its items."""

    def result(self) -> List[T]:
        """The values of all of them, in order; raises the first failure in that order."""
        return [future.result() for future in self]


# ---------------------------------------------------------------- arguments


def find_futures(values: Iterable[Any]) -> List[Future[Any]]:
    """The futures among ``values`` and in lists, tuples and dicts within them."""
    found: List[Future[Any]] = []
    for value in values:
        kind = type(value)
        if kind in _SCALARS:
            continue
        if kind is Future:
            found.append(value)
        elif kind is list or kind is tuple or kind is Futures:
            if not set(map(type, value)) <= _SCALARS:
                found.extend(find_futures(value))
        elif kind is dict and not set(map(type, value.values())) <= _SCALARS:
            found.extend(find_futures(value.values()))
    return found


def resolve(value: Any) -> Any:
    """``value`` with the results in the place of its futures."""
    kind = type(value)
    if kind is Future:
        return value.result()
    if kind is list or kind is Futures:
        return [resolve(item) for item in value]
    if kind is tuple:
        return tuple(resolve(item) for item in value)
    if kind is dict:
        return {name: resolve(item) for name, item in value.items()}
    return value


@uninterrupted
def when_all_done(futures: List[Future[Any]], callback: Callable[[], None]) -> None:
    """Call ``callback`` once all of them have ended."""
    left = [len(futures)]

    def one_less() -> None:
        with _settling:
            left[0] -= 1
            last = left[0] == 0
        if last:
            callback()

    for future in futures:
        future.when_done(one_less)


def rows(arguments: Tuple[Any, ...], named: Dict[str, Any]) -> Iterator[Any]:
    """The calls of a ``.map()``: (positional, named) for each item.

    Every iterable must have as many items as the others; what is no iterable, and text and bytes, is
    the same in every call. Raises TypeError.
    """
    columns = [_column(argument) for argument in (*arguments, *named.values())]
    if not any(column is not None for column in columns):
        raise TypeError("map() needs at least one iterable")
    names = list(named)
    fixed = (*arguments, *named.values())
    while True:
        row: List[Any] = []
        ended = 0
        for column, value in zip(columns, fixed):  # noqa: B905 - not in Python 3.9
            item = value if column is None else next(column, _UNSET)
            ended += item is _UNSET
            row.append(item)
        if ended:
            if ended != sum(column is not None for column in columns):
                raise TypeError("map() was given iterables of unequal lengths")
            return
        yield tuple(row[: len(arguments)]), dict(zip(names, row[len(arguments) :]))  # noqa: B905 - not in Python 3.9


def _column(argument: Any) -> Optional[Iterator[Any]]:
    if isinstance(argument, dict):
        raise TypeError("map() over a dict is ambiguous; pass its keys(), values() or items()")
    if isinstance(argument, (str, bytes)):
        return None
    try:
        return iter(argument)
    except TypeError:
        return None


# ---------------------------------------------------------------- threads


class Pool:
    """Threads for the calls of one run. They start as calls come, and end with the run."""

    def __init__(self, threads_max: int = THREADS_MAX) -> None:
        self._threads_max = threads_max
        self._queue: Deque[Entry] = deque()
        self._changed = threading.Condition()
        self._idle = 0
        self._threads: Set[threading.Thread] = set()
        self._unfinished = 0
        self._closed = False
        self.running: Set[int] = set()
        self._failed: List[Future[Any]] = []
        self._waiters: List[Any] = []

    @uninterrupted
    def submit(self, function: Callable[[], None], future: Future[Any]) -> None:
        """Run ``function``, which settles ``future``, on a thread."""
        entry = Entry(self, function, future)
        self.track(future)
        with self._changed:
            self._queue.append(entry)
            future._run = entry.run  # pyright: ignore[reportPrivateUsage]
            if self._idle:
                self._changed.notify()
            elif len(self._threads) < self._threads_max:
                self._start_thread()

    @uninterrupted
    def track(self, future: Future[Any]) -> None:
        """Count a call, which may run elsewhere, until it has ended."""
        with self._changed:
            if self._closed:
                raise Cancelled("the run has ended")
            self._unfinished += 1
        future.when_done(lambda: self._finished(future))

    @uninterrupted
    def give_up_a_thread(self) -> None:
        """A call does not return: its thread no longer counts."""
        with self._changed:
            self._threads_max += 1
            if self._queue:
                self._start_thread()

    @uninterrupted
    def drop_waiting(self, error: BaseException) -> None:
        """End every call that has not begun."""
        with self._changed:
            waiting = list(self._queue)
        for entry in waiting:
            if entry.claim():
                entry.future.settle(error=error)

    def wait(self, timeout_s: Optional[float] = None) -> bool:
        """Wait until every call has ended; False when some have not after ``timeout_s``."""
        return self._waiter().acquire(timeout=-1 if timeout_s is None else timeout_s)

    @uninterrupted
    def _waiter(self) -> Any:
        """A lock that is free once every call has ended."""
        waiter = threading.Lock()
        with self._changed:
            if self._unfinished > 0:
                waiter.acquire()
                self._waiters.append(waiter)
        return waiter

    @uninterrupted
    def close(self) -> None:
        """End the idle threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            threads = list(self._threads)
        if self._unfinished <= 0:
            for thread in threads:
                thread.join(1.0)

    @uninterrupted
    def unseen_failures(self) -> List[Future[Any]]:
        """Calls that failed and whose result nobody has asked for."""
        return [future for future in dict.fromkeys(self._failed) if not future.seen]

    @uninterrupted
    def _finished(self, future: Future[Any]) -> None:
        with self._changed:
            if future.failed:
                self._failed.append(future)
            self._unfinished -= 1
            if self._unfinished <= 0:
                while self._waiters:
                    self._waiters.pop().release()

    def _start_thread(self) -> None:
        name = f"{_PREFIX}{len(self._threads) + 1}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._threads.add(thread)
        thread.start()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._queue:
                    if self._closed:
                        self._threads.discard(threading.current_thread())
                        return
                    self._idle += 1
                    self._changed.wait()
                    self._idle -= 1
                entry = self._queue.popleft()
            entry.run()


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
        with _settling:
            claimed, self._claimed = self._claimed, True
            return not claimed

    def run(self) -> None:
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
