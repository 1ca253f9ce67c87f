"""Loading the source of a node, and calling it: what it returns and yields becomes its outputs."""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType
from typing import Any, Callable, Dict, List

from farhand.errors import CannotLoad, NotDelivered

from .context import current
from .graphs import Member, Output
from .metrics import emit
from .reading import ENTRY

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
    if inspect.isasyncgenfunction(found):
        raise CannotLoad(f"node {node!r} cannot load: its entry is async def and yields, which it cannot yet")
    if inspect.iscoroutinefunction(found) and not awaited:
        raise CannotLoad(
            f"node {node!r} cannot load: its entry is async def, and only running the source shows it;"
            f" write async def {ENTRY}(…) as a statement of its own"
        )
    return found


def call(member: Member, function: Function, *args: Any, **values: Any) -> Values:
    """Call the entry of a node with what it requires; its outputs by name. Raises `NotDelivered`."""
    streams = {output.name: output for output in member.provides if output.stream}
    if not inspect.isgeneratorfunction(function):
        _check_no_streams(member)
        return member.delivered(function(*args, **values))
    yielded: Dict[str, List[Any]] = {name: [] for name in streams}
    returned = drain(member, function(*args, **values), streams, yielded)
    rest = member._replace(provides=tuple(o for o in member.provides if not o.stream))
    return {**yielded, **rest.delivered(returned)}


async def awaited(member: Member, function: Function, **values: Any) -> Values:
    """The same of an entry that is written as ``async def``, which a decorator may have made a plain one."""
    _check_no_streams(member)
    value = function(**values)
    return member.delivered(await value if inspect.isawaitable(value) else value)


def _check_no_streams(member: Member) -> None:
    for output in member.provides:
        if output.stream:
            raise NotDelivered(f"node {member.id!r} did not deliver {output.name!r}: it yields nothing")


def drain(member: Member, points: Any, streams: Dict[str, Output], yielded: Dict[str, List[Any]]) -> Any:
    """Run a generator to its return value; each dict that it yields adds to streams, and to series."""
    while True:
        try:
            point = next(points)
        except StopIteration as end:
            return end.value
        try:
            _take(member, point, streams, yielded)
        except BaseException:  # an interruption too closes what was begun
            points.close()
            raise


def _take(member: Member, point: Any, streams: Dict[str, Output], yielded: Dict[str, List[Any]]) -> None:
    if not isinstance(point, dict):
        raise NotDelivered(
            f"node {member.id!r} yields {type(point).__name__}, and may yield only dicts, as in "
            "yield {'loss': 0.3}"
        )
    numbers: Dict[str, Any] = {}
    for name, value in point.items():
        if name not in streams:
            raise NotDelivered(f"node {member.id!r} yields {name!r}, which it does not declare as a stream")
        fitting = streams[name].fits(value, member.id)
        yielded[name].append(fitting)
        if isinstance(fitting, (int, float)):
            numbers[name] = fitting
    frame = current()
    if numbers:
        emit(**numbers)
    elif frame is not None:
        frame.reported()  # what is no number is no series, and a report all the same
