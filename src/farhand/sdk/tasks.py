"""``@task``: a function whose calls inside a flow are recorded, retried and replayed, here or elsewhere."""

from __future__ import annotations

from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Generic,
    Iterable,
    Mapping,
    Optional,
    TypeVar,
    Union,
    overload,
)

from farhand.errors import NotInFlow, Usage

from . import calls, futures
from .context import Frame, current
from .futures import Future, Futures
from .hooks import Hooks
from .options import Options, TaskOptions, hooks_of, refuse_unknown, refuse_without_place
from .steps import Step

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .graphs import Member

F = TypeVar("F", bound=Callable[..., Any])

WaitFor = Union[Future[Any], Iterable[Future[Any]], None]
"""Futures whose end a call waits for without taking their results."""


class Task(Step[F], Generic[F]):
    """A decorated task. Outside of a run a call is a call of the plain function."""

    word = "task"

    def __init__(self, function: F, options: Options, hooks: Hooks, given: Mapping[str, Any]) -> None:
        super().__init__(function, given.get("name"), options, hooks, delivers=bool(given.get("provides")))
        if self.takes("wait_for"):
            raise Usage(
                f"{self.name} may not name a parameter wait_for: calls of tasks have an option of that name"
            )
        self.member: Optional[Member] = None
        """What it takes and gives as a node of a declared flow, where it says so."""
        if given.get("requires") is not None or given.get("provides") is not None:
            from . import assembling  # noqa: PLC0415 - for those who declare flows

            self.member = assembling.member_of(self, given)
            self.body = self.invoke = assembling.body_of(self.member, function, self.body)

    def __call__(self, *args: Any, wait_for: WaitFor = None, **kwargs: Any) -> Any:
        frame = current()
        if frame is None:
            return self.function(*args, **kwargs)
        return calls.call(self, frame, args, kwargs, wait_for)

    def submit(self, *args: Any, wait_for: WaitFor = None, **kwargs: Any) -> Future[Any]:
        """Call on another thread, or the machine the task asks for; an async task on the running loop.

        Arguments may be futures, also inside of lists, tuples, sets, dicts and dataclasses. The call begins
        when those and the futures of ``wait_for`` have ended, and fails with the first that failed.
        """
        return calls.submit(self, self._frame("submit"), args, kwargs, None, wait_for)

    def map(self, *args: Any, wait_for: WaitFor = None, **kwargs: Any) -> Futures[Any]:
        """Submit one call for each item of the iterables, in order.

        Iterables of unequal lengths are a TypeError before anything is called. What is no iterable, and
        text, bytes and what is `unmapped`, is the same in every call.
        """
        frame = self._frame("map")
        calls_to_make = list(futures.rows(args, kwargs))
        return Futures(
            calls.submit(self, frame, positional, named, index, wait_for)
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
def task(**given: Unpack[TaskOptions]) -> Callable[[F], Task[F]]: ...


def task(function: Optional[F] = None, /, **given: Any) -> Union[Task[F], Callable[[F], Task[F]]]:
    """Make a task of a function. Durations are seconds or text such as ``"30s"``.

    With ``device`` (a label or a list, all required), ``runs_on`` or a size (``cpus``, ``gpus``, ``ram`` in
    megabytes or text such as ``"8G"``, or a ``flavor``) each call is a job of its own on a machine that
    fits; ``device_policy="prefer"`` lets it run on the server where no such machine exists.
    ``priority``, ``isolated``, ``crash_retries`` and ``strict_lease`` are for such tasks. With ``process``
    each call runs in a child process, which a timeout or a cancellation kills. ``durable`` waits until the
    server has recorded the outcome before the flow goes on. The hooks are called with a summary of the call,
    where its flow runs, once it has an outcome that is not replayed. ``requires`` and ``provides`` (names, or
    ``{"name", "type", "stream"}``; a stream that is required so is read along) are what it takes and gives as
    a node of a ``Flow("name", nodes=[…])``. The rest is as for a flow.
    """
    refuse_unknown("task", given)
    options, hooks = Options(given), hooks_of(given)
    refuse_without_place(options, given)
    if function is not None:
        return Task(function, options, hooks, given)

    def decorate(decorated: F) -> Task[F]:
        return Task(decorated, options, hooks, given)

    return decorate
