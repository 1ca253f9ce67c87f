"""The schedules of a document: ``{"cron": "0 6 * * *", "timezone": …}`` or ``{"every": "15m"}``.

What is wrong with a cron's fields, or with the name of a place, only the server knows, which keeps time.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from farhand.errors import FarhandError

from . import parameters, schedules
from .annotations import kind_of
from .graphs import MISSING, TYPES, Input, shortened
from .schedules import Schedule

Given = Dict[str, Any]
Say = Callable[[str], None]

SCHEDULES_MAX = 100

_FIELDS = {"cron": ("timezone", "inputs", "overlap"), "every": ("anchor", "inputs", "overlap")}
_ALL = ("anchor", "cron", "every", "inputs", "overlap", "timezone")


class Placed(NamedTuple):
    """A schedule, and its place in the document."""

    place: int
    schedule: Schedule

    def described(self) -> Given:
        """As JSON."""
        return {"place": self.place, **self.schedule.described()}


def read(given: Any, inputs: Sequence[Input], say: Say) -> List[Placed]:
    """The schedules of a document that can be read; what is wrong with the others is said."""
    if not isinstance(given, list):
        say("schedules must be a list")
        return []
    if len(given) > SCHEDULES_MAX:
        say(f"there are {len(given)} schedules, and may be {SCHEDULES_MAX}")
        return []
    schema = _schema(inputs)
    found: List[Placed] = []
    for place, item in enumerate(given, 1):
        schedule = _schedule(
            item, schema, lambda text, place=place: say(f"schedules: in place {place}: {text}")
        )
        if schedule is None:
            continue
        for earlier in found:
            if earlier.schedule.described() == schedule.described():
                say(f"schedules: in place {place}: it is the same as the one in place {earlier.place}")
        found.append(Placed(place, schedule))
    return found


def _schedule(item: Any, schema: Given, say: Say) -> Optional[Schedule]:
    kinds = [kind for kind in _FIELDS if isinstance(item, dict) and kind in item]
    if len(kinds) != 1:
        say(f'{shortened(item)} is no object with either "cron" or "every"')
        return None
    (kind,) = kinds
    for name in item:
        if name not in _ALL:
            say(f"there is no field {shortened(name)}; there are: {', '.join(_ALL)}")
        elif name != kind and name not in _FIELDS[kind]:
            say(f"{name} means nothing beside {kind}")
    values = item.get("inputs", {})
    try:
        made = _MAKERS[kind](item, values if isinstance(values, dict) else {})
    except (FarhandError, TypeError, ValueError, OverflowError) as error:
        say(in_words_of_documents(error))
        return None
    try:
        parameters.check(schema, values)
    except FarhandError as error:
        say(f"inputs: {error}")
    return made


def in_words_of_documents(error: BaseException) -> str:
    """What is wrong with a schedule: what Python calls ``tz`` is ``timezone`` in a document."""
    return str(error).replace("tz=", "timezone ", 1)


def _cron(item: Given, values: Given) -> Schedule:
    zone = item.get("timezone", "UTC")
    if not isinstance(zone, str):
        raise TypeError(
            f"timezone {shortened(zone)} is not a place's; give one such as 'Europe/Berlin', or 'UTC'"
        )
    return schedules.cron(item["cron"], tz=zone, params=values, overlap=item.get("overlap", "allow"))


def _every(item: Given, values: Given) -> Schedule:
    return schedules.every(
        item["every"], anchor=item.get("anchor"), params=values, overlap=item.get("overlap", "allow")
    )


_MAKERS: Dict[str, Callable[[Given, Given], Schedule]] = {"cron": _cron, "every": _every}


def _schema(inputs: Sequence[Input]) -> Given:
    """The inputs as the schema of a parameters object."""
    properties = {given.name: dict(kind_of(TYPES[given.type]).schema) for given in inputs}
    for given in inputs:
        if given.default is not MISSING:
            properties[given.name]["default"] = given.default
    required = [given.name for given in inputs if given.default is MISSING]
    return {"properties": properties, "required": required}
