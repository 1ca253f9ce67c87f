"""What comes of an operation that the writer was given: to be awaited, or acted on at once.

A future wakes whoever awaits it a turn of the event loop later, and a task that does so is one more thing to
make. What follows a report is on the way of every job, so it is done in the very turn in which the commit is
heard of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")
U = TypeVar("U")


class Answer(Generic[T]):
    """A value, or an error, that comes later. Used on one event loop; nobody has to take it."""

    __slots__ = ("_error", "_followers", "_mend", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: Any = None
        self._error: Exception | None = None
        self._mend: Callable[[Exception], Answer[T] | None] | None = None
        self._followers: list[Callable[[Answer[T]], object]] = []

    def succeed(self, value: T) -> None:
        """It has come: this is the value."""
        self._value = value
        self._settle()

    def fail(self, error: Exception) -> None:
        """It has come: there is none, for this reason, unless it is mended."""
        mend, self._mend = self._mend, None
        other = None if mend is None else mend(error)
        if other is not None:
            other.follow(self._copy)
        else:
            self._error = error
            self._settle()

    def result(self) -> T:
        """The value; raises the error."""
        if self._error is not None:
            raise self._error
        return self._value

    def follow(self, act: Callable[[Answer[T]], object]) -> None:
        """Call ``act`` with this once it has come, in their order where there are several.

        What ``act`` raises is told as what any callback of the loop raises, and keeps nobody else from it.
        """
        self._followers.append(act)
        if self.done:
            self._settle()

    def or_else(self, mend: Callable[[Exception], Answer[T] | None]) -> Answer[T]:
        """This, but for an error that comes later and for which ``mend`` knows another answer."""
        self._mend = mend
        return self

    def then(self, change: Callable[[Answer[T]], U | Answer[U]]) -> Answer[U]:
        """What ``change`` makes of this once it has come: a value, an error that it raises, or what comes of
        yet another answer."""
        changed: Answer[U] = Answer()

        def pass_on(answer: Answer[T]) -> None:
            try:
                value = change(answer)
            except Exception as error:  # noqa: BLE001 whatever it is, it belongs to whoever takes what has changed
                changed.fail(error)
            else:
                if isinstance(value, Answer):
                    changed.become(cast("Answer[U]", value))
                else:
                    changed.succeed(value)

        self.follow(pass_on)
        return changed

    def become(self, value: T | Answer[T]) -> None:
        """It has come, or comes when another does."""
        if isinstance(value, Answer):
            cast("Answer[T]", value).follow(self._copy)
        else:
            self.succeed(value)

    def _copy(self, other: Answer[T]) -> None:
        self._value, self._error = other._value, other._error
        self._settle()

    def _settle(self) -> None:
        self.done = True
        followers, self._followers = self._followers, []
        for act in followers:
            try:
                act(self)
            except Exception as error:  # noqa: BLE001 a mistake of one follower is nobody else's
                _tell(act, error)

    def __await__(self) -> Generator[Any, None, T]:
        if not self.done:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.follow(lambda _: future.done() or future.set_result(None))  # a caller may have given up
            yield from future
        return self.result()


def _tell(act: object, error: Exception) -> None:
    context = {"message": f"{act!r} failed", "exception": error}
    asyncio.get_running_loop().call_exception_handler(context)


def succeeded(value: T) -> Answer[T]:
    """An answer that has come already."""
    answer = Answer[T]()
    answer.succeed(value)
    return answer


def failed(error: Exception) -> Answer[Any]:
    """An answer that has come already, and is an error."""
    answer = Answer[Any]()
    answer.fail(error)
    return answer
