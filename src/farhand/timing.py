"""When schedules fire. Pure: the moments of a spec after a moment, and nothing about now.

A spec is what inspection exports: ``{"kind": "cron", "expr": "0 6 * * *", "tz": "Europe/Berlin"}`` or
``{"kind": "every", "seconds": 900.0, "anchor": 0.0}``, and ``"overlap": "skip"`` where no run is to begin
before another has ended. Moments are seconds since the epoch, UTC.

When clocks change, a cron whose hour is given fires by the clock on the wall: a time that does not exist
that day fires at the first moment that does, a time that comes twice fires once, the first time. A cron
whose hour is ``*`` and every interval follow real elapsed time, so that they neither stop nor bunch up.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from .errors import Usage

EVERY_S_MIN = 1.0
MISSED_MAX = 1000
"""Missed fires are counted up to here."""

_WINDOWS_S = (3600.0, 86400.0, 32 * 86400.0, 366 * 86400.0)
_HOURS = "0-23"


@dataclass(frozen=True, slots=True)
class Cron:
    """Five fields, by the clock of a time zone."""

    expr: str
    tz: str

    def fires(self, after: float) -> Iterator[float]:
        """Every moment after ``after``, in order."""
        zone = ZoneInfo(self.tz)
        start = datetime.fromtimestamp(math.floor(after), zone)
        moments = _elapsed(self.expr, start) if self._is_hourly else _by_the_wall(self.expr, start, zone)
        last = after
        for moment in moments:
            if moment > last:
                last = moment
                yield moment

    def latest(self, after: float, until: float) -> float | None:
        """The last moment after ``after`` and not after ``until``, or None."""
        for window_s in _WINDOWS_S:
            start = max(after, until - window_s)
            found = _last(self.fires(start), until)
            if found is not None or start == after:
                return found
        return _last(self.fires(after), until)

    def __str__(self) -> str:
        return f"{self.expr} in {self.tz}"

    @property
    def _is_hourly(self) -> bool:
        return self.expr.split()[1] in ("*", "*/1", _HOURS)


@dataclass(frozen=True, slots=True)
class Every:
    """Every so many seconds of real time, counted from ``anchor``."""

    seconds: float
    anchor: float

    def fires(self, after: float) -> Iterator[float]:
        """Every moment after ``after``, in order."""
        number = math.floor((after - self.anchor) / self.seconds) - 1
        for count in itertools.count(number):
            moment = self.anchor + count * self.seconds
            if moment > after:
                yield moment

    def latest(self, after: float, until: float) -> float | None:
        """The last moment after ``after`` and not after ``until``, or None."""
        number = math.floor((until - self.anchor) / self.seconds) + 1
        for count in range(number, number - 3, -1):
            moment = self.anchor + count * self.seconds
            if moment <= until:
                return moment if moment > after else None
        return None

    def __str__(self) -> str:
        for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
            if self.seconds % length == 0:
                return f"every {self.seconds / length:g} {unit}"
        return f"every {self.seconds:g} s"


Timing = Cron | Every


def read(spec: Mapping[str, Any]) -> Timing:
    """The timing of a spec. Raises `Usage` saying which part of it cannot be used."""
    reader = _READERS.get(str(spec.get("kind")))
    if reader is None:
        raise Usage(f"a schedule is cron or every, not {spec.get('kind')!r}")
    if spec.get("overlap", "skip") != "skip":
        raise Usage(f"overlap is 'skip' or left out, not {spec['overlap']!r}")
    return reader(spec)


def skips(spec: Mapping[str, Any]) -> bool:
    """Whether nothing is started while a run that this schedule started has not ended."""
    return spec.get("overlap") == "skip"


def missed(timing: Timing, after: float, until: float) -> int:
    """How many moments lie after ``after`` and before ``until``; counted up to `MISSED_MAX`."""
    between = itertools.takewhile(lambda moment: moment < until, timing.fires(after))
    return sum(1 for _ in itertools.islice(between, MISSED_MAX))


def _last(moments: Iterator[float], until: float) -> float | None:
    return max(itertools.takewhile(lambda moment: moment <= until, moments), default=None)


def _read_cron(spec: Mapping[str, Any]) -> Cron:
    expr, tz = " ".join(str(spec.get("expr", "")).split()), str(spec.get("tz", "UTC"))
    if len(expr.split()) != 5:
        raise Usage(f"cron {expr!r} does not have five fields: minute, hour, day, month, day of the week")
    check_zone(tz)
    timing = Cron(expr, tz)
    try:
        first = next(timing.fires(0.0), None)
    except (CronSimError, ValueError, AssertionError) as error:
        raise Usage(f"cron {expr!r} cannot be read: {str(error) or 'one of its fields is wrong'}") from error
    if first is None:
        raise Usage(f"cron {expr!r} never fires")
    return timing


def _read_every(spec: Mapping[str, Any]) -> Every:
    seconds: Any = spec.get("seconds")
    anchor: Any = spec.get("anchor", 0.0)
    for name, value in (("seconds", seconds), ("anchor", anchor)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise Usage(f"every: {name} must be a number")
    if seconds < EVERY_S_MIN:
        raise Usage(f"every: an interval is at least {EVERY_S_MIN:g} second")
    return Every(float(seconds), float(anchor))


_READERS: Mapping[str, Callable[[Mapping[str, Any]], Timing]] = {"cron": _read_cron, "every": _read_every}


def check_zone(tz: str) -> None:
    """Raise `Usage` unless ``tz`` names a zone without doubt: UTC, or Area/City.

    An abbreviation such as EST is refused: it names an offset that does not follow the clocks of any place.
    """
    if tz == "UTC":
        return
    if "/" not in tz or tz.startswith(("posix/", "right/")):
        raise Usage(f"tz={tz!r} is not a place's time zone; give one such as 'Europe/Berlin', or 'UTC'")
    try:
        ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise Usage(
            f"tz={tz!r} is unknown on this machine; check its spelling, or install the package tzdata"
        ) from error


def _elapsed(expr: str, start: datetime) -> Iterator[float]:
    fields = expr.split()
    fields[1] = "*"  # which is what makes the iterator follow real time
    return (moment.astimezone(UTC).timestamp() for moment in CronSim(" ".join(fields), start))


def _by_the_wall(expr: str, start: datetime, zone: ZoneInfo) -> Iterator[float]:
    """The moments at which a clock on the wall shows what ``expr`` says; some may come twice in a row.

    The way from wall time to the first moment that shows it (or, in a gap, to the gap's end) never turns
    back. So it is enough to begin at what the clock shows now.
    """
    return (_moment(wall, zone) for wall in CronSim(expr, start.replace(tzinfo=None)))


def _moment(wall: datetime, zone: ZoneInfo) -> float:
    while True:
        moment = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
        if moment.astimezone(zone).replace(tzinfo=None) == wall:
            return moment.timestamp()
        wall += timedelta(minutes=1)
