"""Metric series as small SVG charts, drawn by the server. Pure geometry; colours are the stylesheet's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...model import MetricPoint, TaskRun

WIDTH, HEIGHT = 320, 96
PAD = 4
POINTS_MAX = 320
"""More points than the chart has columns are thinned to the extremes of each column."""


@dataclass(frozen=True, slots=True)
class Chart:
    """One series, ready to draw. ``line`` is the ``points`` of an SVG polyline."""

    name: str
    line: str
    dot: tuple[float, float]
    count: int
    last: float
    low: float
    high: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Overlay:
    """One series of several runs on one scale. ``lines`` has one a run, empty where the run has none."""

    name: str
    lines: list[str]
    low: float
    high: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Bar:
    """When a call was under way, as places between 0 and 100 of the time its run took."""

    begin: float
    width: float


Samples = list[tuple[float, float]]


def charts(points: list[MetricPoint]) -> list[Chart]:
    """A chart a series, in the order in which the series first appeared."""
    return [_chart(name, samples) for name, samples in _series(points).items()]


def _series(points: list[MetricPoint]) -> dict[str, Samples]:
    series: dict[str, Samples] = {}
    for point in points:
        for name, value in point.values.items():
            if _is_finite(value):
                series.setdefault(name, []).append((point.at, float(value)))
    return series


def overlays(runs: list[list[MetricPoint]]) -> list[Overlay]:
    """A chart a series that any of the runs has; the times of each run begin with its first point."""
    of_runs = [_series(points) for points in runs]
    names = dict.fromkeys(name for series in of_runs for name in series)
    return [_overlay(name, [series.get(name, []) for series in of_runs]) for name in names]


def _overlay(name: str, of_runs: list[Samples]) -> Overlay:
    begun = [[(at - samples[0][0], value) for at, value in samples] for samples in of_runs]
    everything = [sample for samples in begun for sample in samples]
    seconds = max(at for at, _ in everything)
    low, high = min(v for _, v in everything), max(v for _, v in everything)
    lines = [
        _points((_scale(at, 0, seconds, WIDTH), HEIGHT - _scale(v, low, high, HEIGHT)) for at, v in samples)
        for samples in begun
    ]
    return Overlay(name, lines, low, high, seconds)


def bars(tasks: list[TaskRun], now: float) -> dict[str, Bar]:
    """A bar for each call that has begun, by its key."""
    begun = [(task.key, task.started_at, task.ended_at or now) for task in tasks if task.started_at]
    if not begun:
        return {}
    first, last = min(begin for _, begin, _ in begun), max(end for _, _, end in begun)
    whole = max(last - first, 1e-6)
    return {
        key: Bar(round((begin - first) / whole * 99, 2), round(max(1.0, (end - begin) / whole * 99), 2))
        for key, begin, end in begun
    }


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) < float("inf")


def _chart(name: str, samples: Samples) -> Chart:
    begin, end = samples[0][0], max(at for at, _ in samples)
    low, high = min(v for _, v in samples), max(v for _, v in samples)
    by_time = end > begin
    placed = [
        (
            _scale(at, begin, end, WIDTH) if by_time else _scale(i, 0, len(samples) - 1, WIDTH),
            HEIGHT - _scale(value, low, high, HEIGHT),
        )
        for i, (at, value) in enumerate(samples)
    ]
    return Chart(name, _points(placed), placed[-1], len(samples), samples[-1][1], low, high, end - begin)


def _points(placed: Iterable[tuple[float, float]]) -> str:
    """The ``points`` of an SVG polyline."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in thin(list(placed)))


def _scale(value: float, low: float, high: float, span: int) -> float:
    """``value`` between ``low`` and ``high`` as a place inside ``span``; the middle when they are one."""
    share = (value - low) / (high - low) if high > low else 0.5
    return PAD + share * (span - 2 * PAD)


def thin(placed: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most a lowest and a highest point a column, so that no spike is lost."""
    if len(placed) <= POINTS_MAX:
        return placed
    columns: dict[int, list[tuple[float, float]]] = {}
    for x, y in placed:
        columns.setdefault(int(x / 2), []).append((x, y))
    kept: list[tuple[float, float]] = []
    for column in columns.values():
        extremes = {min(column, key=lambda p: p[1]), max(column, key=lambda p: p[1])}
        kept.extend(sorted(extremes))
    return kept
