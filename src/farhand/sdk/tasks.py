"""``@task``: a function whose calls inside a flow are recorded, retried and replayed, here or elsewhere."""

from __future__ import annotations

from typing import Any, Callable, Generic, Optional, TypeVar, Union, overload

from farhand.errors import NotInFlow

from . import calls, futures
from .context import Frame, current
from .futures import Future, Futures
from .options import Labels, Names, Options, refuse_unknown, refuse_without_place
from .retries import Delay, Duration, RetryOn
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
    retry_delay: Delay = 0,
    retry_on: RetryOn = None,
    crash_retries: int = 3,
    timeout: Optional[Duration] = None,
    silence_timeout: Optional[Duration] = None,
    priority: Optional[int] = None,
    runs_on: str = "any",
    device: Labels = None,
    device_policy: str = "require",
    isolated: bool = False,
    strict_lease: bool = False,
    secrets: Names = None,
) -> Callable[[F], Task[F]]: ...


def task(
    function: Optional[F] = None,
    /,
    *,
    name: Optional[str] = None,
    **given: Any,
) -> Union[Task[F], Callable[[F], Task[F]]]:
    """Make a task of a function. Durations are seconds or text such as ``"30s"``.

    With ``device`` (a label or a list, all required) or ``runs_on`` each call is a job of its own on a
    machine that fits; ``device_policy="prefer"`` lets it run on the server where no such machine exists.
    ``priority`` and ``isolated`` are for such tasks. The rest is as for a flow.
    """
    refuse_unknown("task", given)
    options = Options(**given)
    refuse_without_place(options)
    if function is not None:
        return Task(function, name, options)

    def decorate(decorated: F) -> Task[F]:
        return Task(decorated, name, options)

    return decorate
