"""``cron(…)`` and ``every(…)``: when a flow starts by itself. They only describe; the server keeps time."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Sequence, Union

from farhand.errors import NotSupported, Usage

from .durations import seconds

_ZONE = re.compile(r"UTC|[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)+")
_LATER: FrozenSet[str] = frozenset(
    [
        "catchup",
        "catch_up",
        "end",
        "jitter",
        "misfire",
        "missed",
        "name",
        "start",
        "until",
        "window",
    ]
)

OVERLAPS = ("allow", "skip")


class Schedule:
    """One schedule: what `cron` and `every` return. ``spec`` is plain data for the server."""

    __slots__ = ("params", "spec")

    def __init__(self, spec: Dict[str, Any], params: Optional[Mapping[str, Any]]) -> None:
        self.spec = spec
        self.params = _plain(params or {})

    def described(self) -> Dict[str, Any]:
        """As inspection exports it."""
        return {"spec": self.spec, "params": self.params}

    def __repr__(self) -> str:
        return f"<schedule {self.spec}>"


Schedules = Union[Schedule, Sequence[Schedule], None]


def cron(
    expr: str,
    *,
    tz: str = "UTC",
    params: Optional[Mapping[str, Any]] = None,
    overlap: str = "allow",
    **unknown: Any,
) -> Schedule:
    """By the clock of a place: ``cron("0 6 * * *", tz="Europe/Berlin")``.

    ``expr`` has five fields: minute, hour, day, month, day of the week. A time that does not exist on a day
    fires at the first moment after it that does; one that comes twice fires the first time. ``params`` are
    those of the runs it starts. With ``overlap="skip"`` it starts none while one that it started has not
    ended.
    """
    _refuse("cron", unknown)
    if not isinstance(expr, str) or len(expr.split()) != 5:
        raise Usage(f"cron({expr!r}) needs five fields: minute, hour, day, month, day of the week")
    if not isinstance(tz, str) or not _ZONE.fullmatch(tz):
        raise Usage(f"tz={tz!r} is not a place's time zone; give one such as 'Europe/Berlin', or 'UTC'")
    return Schedule({"kind": "cron", "expr": " ".join(expr.split()), "tz": tz, **_policy(overlap)}, params)


def every(
    interval: Union[int, float, str],
    *,
    anchor: Union[datetime, str, int, float, None] = None,
    params: Optional[Mapping[str, Any]] = None,
    overlap: str = "allow",
    **unknown: Any,
) -> Schedule:
    """Every so many seconds of real time: ``every(90)``, ``every("15m")``.

    ``anchor`` is one of the moments (any of them, past or future): a datetime with its zone, such text, or
    seconds since the epoch, which it is by default. So every quarter of an hour is at :00, :15, :30 and :45.
    ``params`` and ``overlap`` are as for `cron`.
    """
    _refuse("every", unknown)
    try:
        interval_s = seconds(interval)
    except ValueError as error:
        raise Usage(f"every({interval!r}) {error}") from None
    if interval_s < 1:
        raise Usage(f"every({interval!r}) is too often; an interval is at least one second")
    spec = {"kind": "every", "seconds": interval_s, "anchor": _moment(anchor), **_policy(overlap)}
    return Schedule(spec, params)


def listed(value: Schedules) -> List[Schedule]:
    """One schedule or several as a list without repetition. Raises `Usage` for what is none."""
    found = [] if value is None else [value] if isinstance(value, Schedule) else list(value)
    if not all(isinstance(item, Schedule) for item in found):
        raise Usage("schedule must be cron(…) or every(…), or a list of them")
    for place, item in enumerate(found):
        if any(item.described() == other.described() for other in found[:place]):
            raise Usage(
                f"the schedule {item.spec} is there twice; give the two different params, or drop one"
            )
    return found


def _refuse(word: str, unknown: Dict[str, Any]) -> None:
    for name in unknown:
        if name in _LATER:
            raise NotSupported(f"{word}({name}=…) is not supported yet; leave it out")
        raise TypeError(f"{word}() has no parameter {name!r}")


def _policy(overlap: str) -> Dict[str, str]:
    """What a spec says of it: nothing of what is so anyway."""
    if overlap not in OVERLAPS:
        raise Usage(f"overlap={overlap!r:.40} is none there is; it is 'allow', or 'skip'")
    return {} if overlap == OVERLAPS[0] else {"overlap": overlap}


def _plain(params: Mapping[str, Any]) -> Dict[str, Any]:
    try:
        return json.loads(json.dumps(dict(params), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise Usage(f"params of a schedule must be plain JSON values: {error}") from None


def _moment(anchor: Union[datetime, str, int, float, None]) -> float:
    if anchor is None:
        return 0.0
    if isinstance(anchor, (int, float)) and not isinstance(anchor, bool):
        return float(anchor)
    moment: Any = anchor
    if isinstance(anchor, str):
        try:
            moment = datetime.fromisoformat(re.sub(r"[Zz]$", "+00:00", anchor))
        except ValueError:
            raise Usage(f"anchor={anchor!r} is not a moment; one reads like 2030-01-31T06:00+01:00") from None
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise Usage("anchor must say its zone: a datetime with tzinfo, or text that ends in Z or +01:00")
    return moment.timestamp()
