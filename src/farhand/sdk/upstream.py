"""What an attempt of a node yields in this process, for those who read it along here or elsewhere."""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

from farhand.errors import NotSerializable

from .interrupts import uninterrupted
from .streams import BROKEN, ENDED, OPEN, Arrived, Part

PAGE_VALUES_MAX = 1000


class Attempt:
    """What one attempt of a node yields in this process.

    ``write`` reports it as what the call ``key`` yields, where somebody else reads.
    """

    def __init__(
        self, names: Iterable[str], key: str = "", write: Optional[Callable[..., None]] = None
    ) -> None:
        self.values: Dict[str, List[Any]] = {name: [] for name in names}
        self.state = OPEN
        self.key = key
        self.when_ready: Optional[Callable[[], None]] = None
        """Called with the first value of each stream, and at the end."""
        self._message = ""
        self._write = write
        self._lock = threading.Lock()
        self._waiting: List[Tuple[str, int, Arrived]] = []

    def begin(self) -> None:
        """Say that what earlier attempts have yielded is void."""
        for name in self.values if self._write is not None else ():
            self._report(name, "begun")

    def add(self, name: str, value: Any) -> None:
        """The node has yielded a value."""
        self._report(name, "value", value=value, urgent=not self.values[name])
        with self._lock:
            if self.state != OPEN:
                return
            self.values[name].append(value)
            first = len(self.values[name]) == 1
        self._tell(first)

    def end(self, state: str, message: str = "") -> None:
        """The attempt is over: ended, or broken for what the message says."""
        with self._lock:
            if self.state != OPEN:
                return
        for name in self.values if self._write is not None else ():
            self._report(name, state, message=message, urgent=True)
        with self._lock:
            self.state, self._message = state, message
        self._tell(True)

    def ask(self, name: str, after: int, arrived: Arrived) -> None:
        """Call ``arrived`` once there is something after that number."""
        with self._lock:
            part = self._part(name, after)
            if part is None:
                self._waiting.append((name, after, arrived))
        if part is not None:
            arrived(part)

    def _report(self, name: str, step: str, **more: Any) -> None:
        if self._write is not None:
            self._write(name, step, **more)

    @uninterrupted
    def _tell(self, ready: bool) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
            found = [(arrived, self._part(name, after)) for name, after, arrived in waiting]
            self._waiting += [one for one, (_, part) in zip(waiting, found) if part is None]  # noqa: B905 - not in Python 3.9
        for arrived, part in found:
            if part is not None:
                arrived(part)
        if ready and self.when_ready is not None:
            self.when_ready()

    def _part(self, name: str, after: int) -> Optional[Part]:
        if self.state == BROKEN:
            return Part((), after, BROKEN, self._message)
        values = self.values[name][after : after + PAGE_VALUES_MAX]
        last = after + len(values)
        ended = self.state == ENDED and last == len(self.values[name])
        return Part(values, last, ENDED if ended else OPEN) if values or ended else None


class Nearby:
    """One stream of an attempt in this process. ``key`` is the call's, if it is reported."""

    def __init__(self, attempt: Attempt, name: str, key: str) -> None:
        self._attempt = attempt
        self._name = name
        self._key = key

    def ask(self, after: int, arrived: Arrived) -> None:
        """Ask the attempt."""
        self._attempt.ask(self._name, after, arrived)

    def value(self, item: Any) -> Any:
        """Itself."""
        return item

    def reference(self) -> Any:
        """Which stream it is, of a call that is reported as it yields."""
        if not self._key:
            raise NotSerializable(f"the stream {self._name!r} is read by nodes that require it alone")
        return "key", self._key
