"""``@task``: a function whose calls inside a flow are recorded, retried and replayed, here or elsewhere."""

from __future__ import annotations

from typing import Any, Callable, Generic, Optional, TypeVar, Union, overload

from farhand.errors import NotInFlow

from . import calls, futures
from .context import Frame, current
from .futures import Future, Futures
from .options import Duration, Labels, Options, refuse_unknown
from .steps import Step

F = TypeVar("F", bound=Callable[..., Any])


class Task(Step[F], Generic[F]):
    """A decorated task. Outside of a run a call is a call of the plain function."""

    word = "task"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        frame = current()
        if frame is None:
            return self.function(*args, **kwargs)
        return calls.call(self, frame, args, kwargs)

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call on another thread, or the machine the task asks for; arguments may be futures."""
        return calls.submit(self, self._frame("submit"), args, kwargs)

    def map(self, *args: Any, **kwargs: Any) -> Futures[Any]:
        """Submit one call for each item of the iterables, in order.

        Iterables of unequal lengths are a TypeError before anything is called. What is no iterable, and
        text and bytes, is the same in every call.
        """
        frame = self._frame("map")
        calls_to_make = list(futures.rows(args, kwargs))
        return Futures(
            calls.submit(self, frame, positional, named, index)
            for index, (positional, named) in enumerate(calls_to_make)
        )

    def _frame(self, verb: str) -> Frame:
        frame = current()
        if frame is None:
            raise NotInFlow(
                f"{self.name}.{verb}() works only inside a running flow; call {self.name}() instead"
            )
        return frame


@overload
def task(function: F, /) -> Task[F]: ...


@overload
def task(
    *,
    name: Optional[str] = None,
    retries: int = 0,
    retry_delay: Duration = 0,
    crash_retries: int = 3,
    timeout: Optional[Duration] = None,
    runs_on: str = "any",
    device: Labels = None,
    device_policy: str = "require",
    strict_lease: bool = False,
) -> Callable[[F], Task[F]]: ...


def task(
    function: Optional[F] = None,
    /,
    *,
    name: Optional[str] = None,
    retries: int = 0,
    retry_delay: Duration = 0,
    crash_retries: int = 3,
    timeout: Optional[Duration] = None,
    runs_on: str = "any",
    device: Labels = None,
    device_policy: str = "require",
    strict_lease: bool = False,
    **unknown: Any,
) -> Union[Task[F], Callable[[F], Task[F]]]:
    """Make a task of a function. Durations are seconds or text such as ``"30s"``.

    With ``device`` (a label or a list, all required) or ``runs_on`` each call is a job of its own on a
    machine that fits; ``device_policy="prefer"`` lets it run on the server where no such machine exists.
    """
    refuse_unknown("task", unknown)
    options = Options(
        retries, retry_delay, crash_retries, timeout, runs_on, device, device_policy, strict_lease
    )
    if function is not None:
        return Task(function, name, options)

    def decorate(decorated: F) -> Task[F]:
        return Task(decorated, name, options)

    return decorate
