"""The limits of calls: of their whole time (`Deadline`) and of the time without a report (`Silence`).

At its deadline a call gets `TimedOut` where it stands. One that has not ended ``grace_s`` later (it sits
in code that Python cannot interrupt) is abandoned: its outcome is recorded without it, and whatever it
returns in the end is dropped.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional, Type, TypeVar

from farhand.errors import SilentTooLong, TimedOut

from .interrupts import clear_async, interrupter, uninterrupted, watcher

if TYPE_CHECKING:
    from .context import Frame

T = TypeVar("T")
GiveUp = Optional[Callable[[TimedOut], None]]


class Abandoned(BaseException):
    """This call was given up and recorded while it still ran; nothing of it counts any more."""


class Deadline:
    """The limit of one call on the current thread. Deadlines of nested calls do not take each other's.

    It strikes ``later_s`` after the timeout, for work that keeps the time itself unless it is stuck.
    """

    base: Type[TimedOut] = TimedOut
    words = "{name} took longer than its timeout of {limit_s:g} s"

    def __init__(self, name: str, timeout_s: float, later_s: float = 0.0, words: str = "") -> None:
        self.fired = False
        self.abandoned = False
        self._message = (words or self.words).format(name=name, limit_s=timeout_s)
        self._timeout_s = timeout_s + later_s
        self._thread = threading.get_ident()
        self._main = threading.current_thread() is threading.main_thread()
        self._closed = False
        self._lock = threading.Lock()
        self._timer: Any = None
        self._kind = type(self.base.__name__, (self.base,), {"deadline": self, "__doc__": self._message})

    def run(self, function: Callable[[], T], grace_s: float, give_up: GiveUp) -> T:
        """``function()``, or `TimedOut`. ``give_up`` is called if the call does not end in time."""
        if self._main:
            interrupter.open()
        self._timer = watcher.after(self._timeout_s, lambda: self._due(grace_s, give_up))
        try:
            try:
                value = function()
            finally:
                self._close()
                watcher.cancel(self._timer)
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
        raise self.base(self._message)

    def _due(self, grace_s: float, give_up: GiveUp) -> None:
        self._fire(grace_s, give_up)

    def _fire(self, grace_s: float, give_up: GiveUp) -> None:
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
        give_up(self.base(self._message))

    @uninterrupted
    def _close(self) -> None:
        with self._lock:
            self._closed = True
        if self.fired and not self._main:
            clear_async(self._thread)


class Hearing:
    """Listens to a call and to all that it calls: ``heard_at`` is when something was last reported."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    @property
    def heard_at(self) -> float:
        """The moment, on the monotonic clock. A job that is blocked has nothing to say, nor has who reads."""
        frame = self._frame
        if frame.run.blocked or frame.waiting:
            return time.monotonic()
        return max(frame.heard_at, frame.run.heard_at)

    def __enter__(self) -> Hearing:
        self._frame.heard_at = time.monotonic()
        self._frame.run.listened_to.append(self._frame)
        return self

    def __exit__(self, *_: object) -> None:
        self._frame.run.listened_to.remove(self._frame)


class Silence(Deadline):
    """The limit of the time that a call may go on without a report: a line, a metric, progress, a task."""

    base = SilentTooLong
    words = "{name} was silent for longer than its silence_timeout of {limit_s:g} s"

    def __init__(
        self, name: str, timeout_s: float, hearing: Hearing, later_s: float = 0.0, words: str = ""
    ) -> None:
        super().__init__(name, timeout_s, later_s, words)
        self._hearing = hearing

    def _due(self, grace_s: float, give_up: GiveUp) -> None:
        rest_s = self._hearing.heard_at + self._timeout_s - time.monotonic()
        if rest_s <= 0:
            self._fire(grace_s, give_up)
        elif not self._closed:
            self._timer = watcher.after(rest_s, lambda: self._due(grace_s, give_up))


class Words(NamedTuple):
    """What is said of a call that passes a limit: what it is called, and a template a limit."""

    name: str
    timeout: str
    silence: str

    def of_timeout(self, limit_s: Optional[float]) -> str:
        """What is said when the whole time is over; nothing where there is no such limit."""
        return "" if limit_s is None else self.timeout.format(name=self.name, limit_s=limit_s)

    def of_silence(self, limit_s: Optional[float]) -> str:
        """The same of silence."""
        return "" if limit_s is None else self.silence.format(name=self.name, limit_s=limit_s)


class Limits(NamedTuple):
    """Both limits of one call. A run that is not recorded is not listened to, so its silence has none.

    ``words`` are those of a step that calls its limits otherwise than ``@task`` does.
    """

    frame: Frame
    timeout_s: Optional[float]
    silence_s: Optional[float]
    words: Optional[Words] = None

    @property
    def none(self) -> bool:
        """Whether the call may take what it takes."""
        return self.timeout_s is None and self.silence_limit_s is None

    @property
    def silence_limit_s(self) -> Optional[float]:
        """The limit of silence, where there is somebody to hear it."""
        return self.silence_s if self.frame.run.recorder.recording else None

    def run(self, function: Callable[[], T], give_up: GiveUp = None, later_s: float = 0.0) -> T:
        """``function()``, or `TimedOut`. Both limits strike ``later_s`` late."""
        if self.none:
            return function()
        return self._in_time(lambda: self._heard_of(function, give_up, later_s), give_up, later_s)

    def _in_time(self, function: Callable[[], T], give_up: GiveUp, later_s: float) -> T:
        if self.timeout_s is None:
            return function()
        words = self.words or Words(self.frame.name, "", "")
        deadline = Deadline(words.name, self.timeout_s, later_s, words.timeout)
        return deadline.run(function, self.frame.run.grace_s, give_up)

    def _heard_of(self, function: Callable[[], T], give_up: GiveUp, later_s: float) -> T:
        limit_s = self.silence_limit_s
        if limit_s is None:
            return function()
        words = self.words or Words(self.frame.name, "", "")
        with Hearing(self.frame) as hearing:
            silence = Silence(words.name, limit_s, hearing, later_s, words.silence)
            return silence.run(function, self.frame.run.grace_s, give_up)


def is_of_an_outer_call(error: Any) -> bool:
    """Whether a `TimedOut` on its way up belongs to the deadline of a caller."""
    return getattr(error, "deadline", None) is not None
