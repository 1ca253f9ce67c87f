"""Futures of calls, and how they are found among arguments. `pool` has the threads that end them."""

from __future__ import annotations

import copy
import threading
import traceback
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
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

from .interrupts import UNRULY, uninterrupted

if TYPE_CHECKING:  # a protocol takes longer to make than everything else here

    class Waits(Protocol):
        """Who is told when a thread waits for calls."""

        def began(self, beside: int = 0) -> Optional[Callable[[Arrival, Optional[float]], bool]]:
            """This thread waits from now on, and for so many others that work for it.

            Returns what is to wait in the place of the arrival itself, if something is.
            """

        def ended(self) -> Optional[Any]:
            """It has what it waited for; a lock to pass before it goes on, if there is one."""

        def left(self) -> None:
            """It gave up."""

        def rested(self) -> None:
            """A call has ended, and its thread has nothing to do."""

    class Keeper(Protocol):
        """Who counts a call until it has ended."""

        def finished(self, future: Future[Any]) -> None:
            """It has."""


T = TypeVar("T")

POOL_THREAD = "farhand-call-"
"""How the names of the threads begin that run calls."""

_UNSET: Any = object()
SCALARS = frozenset({type(None), bool, int, float, str, bytes})


class Future(Generic[T]):
    """A call that was submitted. Pass it to other calls, or ask for its ``result()``."""

    __slots__ = (
        "__weakref__",
        "_callbacks",
        "_done",
        "_error",
        "_value",
        "index",
        "keeper",
        "key",
        "loop_thread",
        "name",
        "run",
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
        self.keeper: Optional[Keeper] = None
        self.run: Optional[Callable[[], None]] = None
        """What runs the call here and now, while it waits for a thread."""
        self._callbacks: List[Callable[[], None]] = []

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
        if threading.current_thread().name.startswith(POOL_THREAD) and self.run is not None:
            self.run()  # a thread of the pool never waits for a call that waits for a thread
            if self.done():
                return
        arrived = Arrival()  # of this one waiter, so that interrupting it leaves nobody else behind
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
            self.run = None
            callbacks, self._callbacks = self._callbacks, []
        if self.keeper is not None:
            self.keeper.finished(self)
        for callback in callbacks:
            try:
                callback()
            except UNRULY:  # of one who waited; the others wait as well
                traceback.print_exc()
        return True

    @uninterrupted
    def when_done(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once the call has ended; at once if it has."""
        with _settling:
            if not self.done():
                self._callbacks.append(callback)
                return
        callback()

    @uninterrupted
    def kept_by(self, keeper: Keeper) -> None:
        """Tell ``keeper`` when the call has ended; at once if it has. The first one stays the keeper."""
        with _settling:
            if self.keeper is not None:
                return
            self.keeper = keeper
            if not self.done():
                return
        keeper.finished(self)

    def __repr__(self) -> str:
        place = "" if self.index is None else f"[{self.index}]"
        return f"<Future of {self.name}{place}, {'done' if self.done() else 'pending'}>"


_settling = threading.RLock()


class Arrival:
    """What one thread waits for, once. Whoever brings it may be to ``rouse`` the thread as well."""

    __slots__ = ("_lock", "rouse")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self.rouse: Optional[Callable[[], None]] = None

    def acquire(self, timeout_s: Optional[float] = None) -> bool:
        """Wait for it, at most so long; whether it has come."""
        return self._lock.acquire(timeout=-1 if timeout_s is None else timeout_s)

    @property
    def came(self) -> bool:
        """Whether it is here, though nobody may have taken it yet."""
        return not self._lock.locked()

    @uninterrupted
    def release(self) -> None:
        """Here it is. Raises RuntimeError where it was already, and nobody has taken it."""
        self._lock.release()
        rouse = self.rouse
        if rouse is not None:
            rouse()


def acquired(arrival: Arrival, timeout_s: Optional[float], waits: Optional[Waits]) -> bool:
    """Wait for an arrival, at most ``timeout_s``, and say to ``waits`` that and how this thread waits."""
    if waits is None:
        return arrival.acquire(timeout_s)
    try:
        wait = waits.began() or Arrival.acquire
        if not wait(arrival, timeout_s):
            waits.left()
            return False
        gate = waits.ended()
        if gate is not None:
            gate.acquire()
    except BaseException:  # also an interruption ends the wait
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
    if len(columns) == 1 and columns[0] is not None and not named:
        for item in columns[0]:
            yield (item,), {}
        return
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
