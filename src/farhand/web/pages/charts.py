"""Metric series as small SVG charts, drawn by the server. Pure geometry; colours are the stylesheet's."""

from __future__ import annotations

from dataclasses import dataclass

from ...model import MetricPoint

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


def charts(points: list[MetricPoint]) -> list[Chart]:
    """A chart a series, in the order in which the series first appeared."""
    series: dict[str, list[tuple[float, float]]] = {}
    for point in points:
        for name, value in point.values.items():
            if _is_finite(value):
                series.setdefault(name, []).append((point.at, float(value)))
    return [_chart(name, samples) for name, samples in series.items()]


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) < float("inf")


def _chart(name: str, samples: list[tuple[float, float]]) -> Chart:
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
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in thin(placed))
    return Chart(name, line, placed[-1], len(samples), samples[-1][1], low, high, end - begin)


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
