"""Loading the source of a node, and calling it: what it returns becomes its outputs."""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType
from typing import Any, Callable, Dict

from farhand.errors import CannotLoad, NotDelivered

from .graphs import Member
from .reading import ENTRY
from .streams import reading
from .yielding import Yielded

Values = Dict[str, Any]
Function = Callable[..., Any]


def load(node: str, module: str, *, awaited: bool = False) -> Function:
    """The entry of the node whose source is this module; only an ``awaited`` one may be ``async def``.

    Raises `CannotLoad`, whatever the source raised.
    """
    try:
        loaded = importlib.import_module(module)
    except Exception as error:  # a source may raise anything
        raise CannotLoad(f"node {node!r} cannot load: {type(error).__name__}: {error}") from error
    except SystemExit as error:
        raise CannotLoad(f"node {node!r} cannot load: its source ended the process") from error
    return _entry(node, loaded, awaited)


def _entry(node: str, module: ModuleType, awaited: bool) -> Function:
    found = getattr(module, ENTRY, None)
    if found is None:
        public = [
            value
            for name, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
        ]
        if len(public) != 1:
            names = ", ".join(each.__name__ for each in public) or "none"
            raise CannotLoad(
                f"node {node!r} cannot load: its source needs a function {ENTRY}, or exactly one public"
                f" function; it has {names}"
            )
        found = public[0]
    if not callable(found):
        raise CannotLoad(f"node {node!r} cannot load: its {ENTRY} is no function")
    if not awaited and (inspect.iscoroutinefunction(found) or inspect.isasyncgenfunction(found)):
        raise CannotLoad(
            f"node {node!r} cannot load: its entry is async def, and only running the source shows it;"
            f" write async def {ENTRY}(…) as a statement of its own"
        )
    return found


def call(member: Member, function: Function, *args: Any, **values: Any) -> Values:
    """Call the entry of a node with what it requires; its outputs by name. Raises `NotDelivered`."""
    taken = (*args, *values.values())
    if not inspect.isgeneratorfunction(function):
        _check_no_streams(member)
        with reading(taken):
            return member.delivered(function(*args, **values))
    yielded = Yielded(member)
    with yielded.until_the_end(), reading(taken):
        return yielded.with_returned(drain(function(*args, **values), yielded))


async def awaited(member: Member, function: Function, *args: Any, **values: Any) -> Values:
    """The same of an entry that is written as ``async def``, which a decorator may have made a plain one.

    One that yields can return nothing: what it delivers beside its streams it yields too, once.
    """
    taken = (*args, *values.values())
    value = function(*args, **values)
    if inspect.isasyncgen(value):
        yielded = Yielded(member, once=True)
        with yielded.until_the_end(), reading(taken):
            await drain_awaited(value, yielded)
            return yielded.complete()
    try:
        _check_no_streams(member)
    except NotDelivered:
        if inspect.iscoroutine(value):
            value.close()
        raise
    with reading(taken):
        return member.delivered(await value if inspect.isawaitable(value) else value)


def _check_no_streams(member: Member) -> None:
    for output in member.provides:
        if output.stream:
            raise NotDelivered(f"node {member.id!r} did not deliver {output.name!r}: it yields nothing")


def drain(points: Any, yielded: Yielded) -> Any:
    """Run a generator to its return value."""
    while True:
        try:
            point = next(points)
        except StopIteration as end:
            return end.value
        try:
            yielded.take(point)
        except BaseException:  # an interruption too closes what was begun
            points.close()
            raise


async def drain_awaited(points: Any, yielded: Yielded) -> None:
    """Run an async generator to its end; an interruption too closes what was begun."""
    try:
        async for point in points:
            yielded.take(point)
    finally:
        await points.aclose()
