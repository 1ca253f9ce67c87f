"""Futures of calls, and the threads that run them."""

from __future__ import annotations

import copy
import threading
from collections import deque
from typing import (
    Any,
    Callable,
    Deque,
    Dict,
    Generator,
    Generic,
    Iterable,
    Iterator,
    List,
    Optional,
    Protocol,
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
SCALARS = frozenset({type(None), bool, int, float, str, bytes})


class Waits(Protocol):
    """Who is told when a thread waits for calls."""

    def began(self) -> None:
        """This thread waits from now on."""

    def ended(self) -> Optional[Any]:
        """It has what it waited for; a lock to pass before it goes on, if there is one."""

    def left(self) -> None:
        """It gave up."""


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
        "loop_thread",
        "name",
        "seen",
        "waits",
    )

    def __init__(self, key: str, name: str, index: Optional[int] = None) -> None:
        self.key = key
        self.name = name
        self.index = index
        self._value: Any = _UNSET
        self._error: Optional[BaseException] = None
        self.seen = False
        self.loop_thread: Optional[int] = None
        self.waits: Optional[Waits] = None
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

    def __await__(self) -> Generator[Any, None, T]:
        """``await future`` in a coroutine: as ``result()``, while the loop goes on."""
        if not self.done():
            from . import aio  # noqa: PLC0415 - who awaits has asyncio already

            yield from aio.ended(self).__await__()
        return self.result()

    def _wait(self, timeout: Optional[float]) -> None:
        if self.loop_thread == threading.get_ident():
            raise RuntimeError(f"{self.name} runs on the loop of this very thread; await the future instead")
        if threading.current_thread().name.startswith(_PREFIX) and self._run is not None:
            self._run()  # a thread of the pool never waits for a call that waits for a thread
            if self.done():
                return
        arrived = threading.Lock()  # of this one waiter, so that interrupting it leaves nobody else behind
        arrived.acquire()
        self.when_done(arrived.release)
        if not acquired(arrived, timeout, self.waits):
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


def acquired(lock: Any, timeout_s: Optional[float], waits: Optional[Waits]) -> bool:
    """Wait for a lock, at most ``timeout_s``, and say to ``waits`` that and how this thread waits."""
    if waits is None:
        return lock.acquire(timeout=-1 if timeout_s is None else timeout_s)
    try:
        waits.began()
        if not lock.acquire(timeout=-1 if timeout_s is None else timeout_s):
            waits.left()
            return False
        gate = waits.ended()
        if gate is not None:
            gate.acquire()
    except BaseException:
        waits.left()
        raise
    return True


class Futures(List["Future[T]"]):
    """The calls of one ``.map()``, in the order of its items."""

    def result(self) -> List[T]:
        """The values of all of them, in order; raises the first failure in that order."""
        return [future.result() for future in self]

    def __await__(self) -> Generator[Any, None, List[T]]:
        """``await futures`` in a coroutine: as ``result()``, while the loop goes on."""
        values: List[T] = []
        for future in self:
            values.append((yield from future.__await__()))
        return values


class unmapped:  # noqa: N801 - it reads as a verb where it is used
    """Marks an argument of ``.map()`` that is the same in every call, though it is iterable."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


# ---------------------------------------------------------------- arguments

_CONTAINERS = frozenset({list, tuple, set, frozenset, dict, Futures})


def find_futures(values: Iterable[Any]) -> List[Future[Any]]:
    """The futures among ``values``, and in the lists, tuples, sets, dicts and dataclasses within them."""
    found: List[Future[Any]] = []
    for value in values:
        kind = type(value)
        if kind in SCALARS:
            continue
        if kind is Future:
            found.append(value)
        elif kind in _CONTAINERS or hasattr(kind, "__dataclass_fields__"):
            _find_within(value, found, set())
    return found


def _find_within(value: Any, found: List[Future[Any]], seen: Set[int]) -> None:
    if id(value) in seen:
        return
    seen.add(id(value))
    members = _members(value)
    if set(map(type, members)) <= SCALARS:
        return
    for member in members:
        kind = type(member)
        if kind is Future:
            found.append(member)
        elif kind in _CONTAINERS or hasattr(kind, "__dataclass_fields__"):
            _find_within(member, found, seen)


def _members(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return value.values()
    if kind in _CONTAINERS:
        return value
    return [getattr(value, name, None) for name in kind.__dataclass_fields__]


def resolve(value: Any) -> Any:
    """``value`` with the results in the place of its futures; what holds none stays the object it is."""
    kind = type(value)
    if kind is Future:
        return value.result()
    if kind in SCALARS or not find_futures((value,)):
        return value
    if kind is dict:
        return {name: resolve(item) for name, item in value.items()}
    if kind is Futures:
        return value.result()
    if kind in _CONTAINERS:
        return kind(resolve(item) for item in value)
    changed = copy.copy(value)
    for name in kind.__dataclass_fields__:
        object.__setattr__(changed, name, resolve(getattr(value, name, None)))
    return changed


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
    fixed = [v.value if type(v) is unmapped else v for v in (*arguments, *named.values())]
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
        raise TypeError(
            "map() over a dict is ambiguous; pass its keys(), values() or items(), or unmapped(…)"
        )
    if isinstance(argument, (str, bytes, unmapped)):
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
        self._waiters: List[Callable[[], None]] = []
        self.waits: Optional[Waits] = None

    @property
    def can_begin(self) -> bool:
        """Whether a call waits for a thread that there is, or could be."""
        return bool(self._queue) and (self._idle > 0 or len(self._threads) < self._threads_max)

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
        future.waits = self.waits
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
        return acquired(self._waiter(), timeout_s, self.waits)

    def _waiter(self) -> Any:
        """A lock that is free once every call has ended."""
        waiter = threading.Lock()
        waiter.acquire()
        self.when_idle(waiter.release)
        return waiter

    @uninterrupted
    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once every call has ended; at once if they all have."""
        with self._changed:
            if self._unfinished > 0:
                self._waiters.append(callback)
                return
        callback()

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
                    self._waiters.pop()()

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
