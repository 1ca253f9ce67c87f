"""Streams that are read along: what a node yields, given to another node while the first one runs.

A `Stream` is iterated over, in plain code or with ``async for``; each iteration begins at the first value.
Where its values come from is its source: the attempt that yields them in this very process, the server, or
the list of a node that has ended. A source is asked for what comes after a number, and calls back once there
is something. So a thread that waits here waits as it would for a call, and its job can be blocked meanwhile.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from typing import (
    Any,
    AsyncIterator,
    Callable,
    Dict,
    Generator,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Protocol,
    Sequence,
    Tuple,
)

from farhand.errors import FarhandError, NotSerializable, StreamBroken

from . import encoding
from .context import Frame, Run, current
from .futures import Arrival, acquired
from .interrupts import interrupter, uninterrupted
from .questions import REFUSED

WAIT_S = 5.0
"""So long the server holds a question back whose answer is not there yet."""

OPEN, ENDED, BROKEN = "open", "ended", "broken"


class Part(NamedTuple):
    """Some values of a stream, up to number ``last``, and its state after them."""

    values: Sequence[Any] = ()
    last: int = 0
    state: str = OPEN
    message: str = ""


Arrived = Callable[[Part], None]


class Source(Protocol):
    """Where the values of a stream come from."""

    def ask(self, after: int, arrived: Arrived) -> None:
        """Call ``arrived`` once there is something after that number; possibly at once."""

    def value(self, item: Any) -> Any:
        """The value that an item of a part stands for."""

    def reference(self) -> Any:
        """What another process makes the same source of. Raises `NotSerializable`."""


class Stream:
    """What another node yields, in order, while it yields it. Iterate over it; ``list(…)`` waits for its end.

    Raises `StreamBroken` where the yielding node does not go on; the node that reads is then begun again with
    the values of its next attempt, or skipped if there is none.
    """

    __slots__ = ("_source", "broken", "name")

    def __init__(self, name: str, source: Source) -> None:
        self.name = name
        self._source = source
        self.broken: Optional[StreamBroken] = None

    def __iter__(self) -> Iterator[Any]:
        after = 0
        while True:
            part = self._checked(_wait(self._source, after))
            for item in part.values:
                yield self._source.value(item)
            after = part.last
            if part.state == ENDED:
                return

    async def __aiter__(self) -> AsyncIterator[Any]:
        after = 0
        while True:
            part = self._checked(await _awaited(self._source, after))
            for item in part.values:
                yield self._source.value(item)
            after = part.last
            if part.state == ENDED:
                return

    def __reduce__(self) -> Tuple[Any, ...]:
        return _revived, (self.name, self._source.reference())

    def __repr__(self) -> str:
        return f"<Stream {self.name}>"

    def _checked(self, part: Part) -> Part:
        if part.state == REFUSED:
            raise refusal(self.name, part.message)
        if part.state == BROKEN:
            self.broken = StreamBroken(f"the stream {self.name!r} broke off: {part.message}")
            raise self.broken
        return part


def refusal(name: str, message: str) -> FarhandError:
    """A stream that is not broken, and cannot be read all the same."""
    return FarhandError(f"the stream {name!r} cannot be read: {message}")


def _revived(name: str, reference: Any) -> Stream:
    kind, given = reference
    if kind == "list":
        return Stream(name, Listed(given))
    frame = current()
    if frame is None:
        raise NotSerializable(f"the stream {name!r} is read by nodes of its run alone")
    return Stream(name, Pages(frame.run, given, name))


# ---------------------------------------------------------------- waiting


def _wait(source: Source, after: int) -> Part:
    """The next part, waited for in plain code."""
    frame, box = current(), _Box()
    source.ask(after, box.put)
    if not box.parts:
        with _waiting(frame), _woken_by(box):
            while not box.parts:
                acquired(box.arrival, None, None if frame is None else frame.run.pool.waits)
    return box.parts[0]


async def _awaited(source: Source, after: int) -> Part:
    """The same on an event loop, which goes on meanwhile."""
    import asyncio  # noqa: PLC0415 - who awaits has loaded it

    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[Part] = loop.create_future()

    def settle(part: Part) -> None:
        if not arrived.done():
            arrived.set_result(part)

    def arrive(part: Part) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, part)

    source.ask(after, arrive)
    with _waiting(current()):
        return await arrived


_counting = threading.Lock()


class _Box:
    """Where one thread waits for one part."""

    def __init__(self) -> None:
        self.parts: List[Part] = []
        self.arrival = Arrival()

    @uninterrupted
    def put(self, part: Part) -> None:
        """Here it is."""
        self.parts.append(part)
        self.wake()

    @uninterrupted
    def wake(self) -> None:
        """Let the thread look."""
        with contextlib.suppress(RuntimeError):  # it is awake already
            self.arrival.release()


@contextlib.contextmanager
def _waiting(frame: Optional[Frame]) -> Generator[None]:
    """Who waits for values is not silent."""
    if frame is None:
        yield
        return
    with _counting:
        frame.waiting += 1
    try:
        yield
    finally:
        with _counting:
            frame.waiting -= 1
        frame.reported()


@contextlib.contextmanager
def _woken_by(box: _Box) -> Generator[None]:
    """An exception that is sent to this thread ends its wait."""
    thread = threading.get_ident()
    interrupter.wakers[thread] = box.wake
    try:
        yield
    finally:
        interrupter.wakers.pop(thread, None)


# ---------------------------------------------------------------- sources


class Listed:
    """The values of a node that has ended."""

    def __init__(self, values: List[Any]) -> None:
        self._values = values

    def ask(self, after: int, arrived: Arrived) -> None:
        """All of them."""
        arrived(Part(self._values[after:], len(self._values), ENDED))

    def value(self, item: Any) -> Any:
        """Itself."""
        return item

    def reference(self) -> Any:
        """The values."""
        return "list", self._values


class Pages:
    """The server's pages of what a call yields, all of one attempt: the newest at the first question."""

    def __init__(self, run: Run, key: str, name: str) -> None:
        self._run = run
        self._key = key
        self._name = name
        self._tries = 0

    def ask(self, after: int, arrived: Arrived) -> None:
        """Ask the server, which answers when there is something."""
        assert self._run.ask_later is not None  # who has no server is given no pages
        args = {"key": self._key, "name": self._name, "after": after, "tries": self._tries, "wait_s": WAIT_S}
        self._run.ask_later("stream", args, lambda body: self._answered(body, arrived))

    def _answered(self, body: Dict[str, Any], arrived: Arrived) -> None:
        self._tries = body.get("tries", self._tries)
        arrived(Part(body.get("values") or (), body.get("last", 0), body["state"], body.get("message", "")))

    def value(self, item: Any) -> Any:
        """Decoded; its file is fetched if it has one."""
        return encoding.decode(item, self._run.recorder.value_path)

    def reference(self) -> Any:
        """Which stream it is."""
        return "key", self._key


# ---------------------------------------------------------------- those who read


@contextlib.contextmanager
def reading(values: Iterable[Any]) -> Generator[None]:
    """Code that is given streams: whatever it makes of one that breaks, it ends with `StreamBroken`."""
    streams = [value for value in values if isinstance(value, Stream)]
    try:
        yield
    except Exception as error:  # whatever user code made of the end of its stream
        broken = _broken_of(streams)
        if broken is None or error is broken:
            raise
        raise broken from error
    broken = _broken_of(streams)
    if broken is not None:
        raise broken


def _broken_of(streams: Iterable[Stream]) -> Optional[StreamBroken]:
    return next((stream.broken for stream in streams if stream.broken is not None), None)


def read_by(function: Callable[..., Any], awaited: bool) -> Callable[..., Any]:
    """A function that is given streams, so that it is held to `reading`."""

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        with reading((*args, *kwargs.values())):
            return function(*args, **kwargs)

    @functools.wraps(function)
    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        with reading((*args, *kwargs.values())):
            return await function(*args, **kwargs)

    return coroutine if awaited else plain
