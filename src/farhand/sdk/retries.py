"""``retry_delay`` and ``retry_on``: when a failed call is made again, and after how long."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Type, Union

from farhand.errors import Usage
from farhand.retrying import retry_delay_s

from .durations import seconds
from .interrupts import UNRULY

Duration = Union[int, float, str]
"""Seconds, or text with a unit: ``"500ms"``, ``"30s"``, ``"5m"``, ``"2h"``, ``"1d"``."""

RetryOn = Union[Type[BaseException], Sequence[Type[BaseException]], Callable[[BaseException], bool], None]
"""Exception types, or a function that says of an exception whether it is worth another attempt."""


class Backoff:
    """The delays before the retries of a call, in order."""

    __slots__ = ("cap_s", "factor", "jitter", "seconds")

    def __init__(
        self, first: Sequence[float], factor: float = 1.0, cap_s: Optional[float] = None, jitter: float = 0.0
    ) -> None:
        self.seconds = list(first)
        self.factor = factor
        self.cap_s = cap_s
        self.jitter = jitter

    def delay_s(self, number: int) -> float:
        """The delay before retry ``number`` (from 1), with its jitter drawn."""
        draw = 0.5
        if self.jitter:
            import random  # noqa: PLC0415 - only for delays with a jitter

            draw = random.random()
        return retry_delay_s(self.seconds, number, self.factor, self.cap_s, self.jitter, draw)

    def described(self) -> Dict[str, Any]:
        """As the server keeps it."""
        return {
            "seconds": self.seconds,
            "factor": self.factor,
            "cap_s": self.cap_s,
            "jitter": self.jitter,
        }


Delay = Union[Duration, Sequence[Duration], Backoff]
"""One delay, one for each retry (the last for all further ones), or `exponential`."""


def exponential(base: Duration = 1, cap: Duration = 60, jitter: float = 0.1) -> Backoff:
    """Delays that double: ``base``, twice that, four times, up to ``cap``, each up to ``jitter`` off."""
    base_s, cap_s = duration("base", base), duration("cap", cap)
    if isinstance(jitter, bool) or not isinstance(jitter, (int, float)) or not 0 <= jitter <= 1:
        raise Usage("jitter is a share between 0 and 1")
    if cap_s < base_s:
        raise Usage("cap must not be less than base")
    return Backoff([base_s], 2.0, cap_s, float(jitter))


def backoff(value: Delay) -> Backoff:
    """The `Backoff` of what was given as ``retry_delay``. Raises `Usage`."""
    if isinstance(value, Backoff):
        return value
    if isinstance(value, (list, tuple)):
        if not value:
            raise Usage("retry_delay is an empty list; leave it out for no delay")
        return Backoff([duration("retry_delay", delay) for delay in value])
    return Backoff([duration("retry_delay", value)])  # type: ignore[arg-type]  # no other sequence is one


def duration(name: str, value: Any) -> float:
    """A duration in seconds. Raises `Usage` naming the parameter."""
    try:
        return seconds(value)
    except ValueError as error:
        raise Usage(f"{name} {error}") from None


class Condition:
    """What ``retry_on`` says. Without it every `Exception` is worth a retry."""

    __slots__ = ("_predicate", "_types")

    def __init__(self, value: RetryOn) -> None:
        self._types: Tuple[Type[BaseException], ...] = (Exception,)
        self._predicate: Optional[Callable[[BaseException], bool]] = None
        if value is None:
            return
        kinds: List[Any] = list(value) if isinstance(value, (list, tuple)) else [value]
        if kinds and all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
            self._types = tuple(kinds)
        elif callable(value) and not isinstance(value, type):
            self._predicate = value
        else:
            raise Usage(
                "retry_on takes exception types, or a function of the exception that answers yes or no"
            )

    def allows(self, error: BaseException) -> bool:
        """Whether ``error`` is worth another attempt. An exception of the predicate itself says no."""
        if not isinstance(error, self._types):
            return False
        if self._predicate is None:
            return True
        try:
            return bool(self._predicate(error))
        except UNRULY:  # user code; what it was asked about is the failure to be reported
            return False
