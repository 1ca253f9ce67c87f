"""A chart of monthly temperatures and precipitation as an SVG document, drawn by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Month = dict[str, Any]

WIDTH, HEIGHT = 960, 600
LEFT, RIGHT = 64, 936
TEMPERATURE_TOP, TEMPERATURE_BOTTOM = 112, 336
RAIN_TOP, RAIN_BOTTOM = 384, 528

STYLE = """
  text { font: 12px system-ui, -apple-system, 'Segoe UI', sans-serif; fill: #475569; }
  .title { font-size: 20px; font-weight: 600; fill: #0f172a; }
  .panel { font-weight: 600; fill: #334155; }
  .grid { stroke: #e2e8f0; }
  .axis { stroke: #94a3b8; }
  .year { stroke: #cbd5e1; stroke-dasharray: 2 4; }
  .band { fill: #fdba74; fill-opacity: 0.45; }
  .mean { fill: none; stroke: #c2410c; stroke-width: 2.5; stroke-linejoin: round; stroke-linecap: round; }
  .rain { fill: #0284c7; }
"""

Scale = Callable[[float], float]


def draw(months: list[Month]) -> str:
    """The chart of ``months``: dicts of month ("2012-01"), mean, low and high (°C) and rain_mm."""
    first, last = months[0]["month"], months[-1]["month"]
    step = (RIGHT - LEFT) / len(months)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>Seattle's weather by month, {first} to {last}</title>",
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text class="title" x="{LEFT}" y="40">Seattle: mild winters, dry summers</text>',
        f'<text x="{LEFT}" y="62">Temperature and precipitation by month, {first} to {last}</text>',
        *_legend(),
        *_temperatures(months, step),
        *_rain(months, step),
        *_years(months, step),
        f'<text x="{LEFT}" y="{HEIGHT - 16}">Source: NOAA National Centers for Environmental '
        "Information</text>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _legend() -> list[str]:
    x = 560
    return [
        f'<line class="mean" x1="{x}" y1="58" x2="{x + 24}" y2="58"/>',
        f'<text x="{x + 30}" y="62">mean</text>',
        f'<rect class="band" x="{x + 82}" y="50" width="24" height="14"/>',
        f'<text x="{x + 112}" y="62">mean low to mean high</text>',
        f'<rect class="rain" x="{x + 262}" y="50" width="14" height="14"/>',
        f'<text x="{x + 282}" y="62">precipitation</text>',
    ]


def _temperatures(months: list[Month], step: float) -> list[str]:
    lowest = 5 * (min(month["low"] for month in months) // 5)
    highest = 5 * -(-max(month["high"] for month in months) // 5)
    y = _scale(lowest, highest, TEMPERATURE_BOTTOM, TEMPERATURE_TOP)

    def points(name: str) -> list[str]:
        return [f"{LEFT + step * (i + 0.5):.1f},{y(month[name]):.1f}" for i, month in enumerate(months)]

    band = points("high") + points("low")[::-1]
    return [
        f'<text class="panel" x="{LEFT}" y="{TEMPERATURE_TOP - 14}">Temperature, °C</text>',
        *_grid(_ticks(lowest, highest, 5), y),
        f'<polygon class="band" points="{" ".join(band)}"/>',
        f'<polyline class="mean" points="{" ".join(points("mean"))}"/>',
    ]


def _rain(months: list[Month], step: float) -> list[str]:
    highest = max(50.0, 50 * -(-max(month["rain_mm"] for month in months) // 50))
    y = _scale(0, highest, RAIN_BOTTOM, RAIN_TOP)
    parts = [
        f'<text class="panel" x="{LEFT}" y="{RAIN_TOP - 14}">Precipitation, mm a month</text>',
        *_grid(_ticks(0, highest, 50), y),
    ]
    for i, month in enumerate(months):
        top = y(month["rain_mm"])
        x, height = LEFT + step * (i + 0.15), RAIN_BOTTOM - top
        parts.append(
            f'<rect class="rain" x="{x:.1f}" y="{top:.1f}" width="{step * 0.7:.1f}" height="{height:.1f}">'
            f"<title>{month['month']}: {month['rain_mm']:.0f} mm</title></rect>"
        )
    parts.append(f'<line class="axis" x1="{LEFT}" y1="{RAIN_BOTTOM}" x2="{RIGHT}" y2="{RAIN_BOTTOM}"/>')
    return parts


def _years(months: list[Month], step: float) -> list[str]:
    """The shared horizontal axis: a line where a year begins, its number below the middle of its months."""
    parts: list[str] = []
    names = [month["month"][:4] for month in months]
    for year in sorted(set(names)):
        start, count = names.index(year), names.count(year)
        x = LEFT + step * start
        if start:
            parts.append(
                f'<line class="year" x1="{x:.1f}" y1="{TEMPERATURE_TOP}" x2="{x:.1f}" y2="{RAIN_BOTTOM}"/>'
            )
        middle = x + step * count / 2
        parts.append(f'<text x="{middle:.1f}" y="{RAIN_BOTTOM + 20}" text-anchor="middle">{year}</text>')
    return parts


def _grid(values: list[float], y: Scale) -> list[str]:
    parts: list[str] = []
    for value in values:
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y(value):.1f}" x2="{RIGHT}" y2="{y(value):.1f}"/>')
        parts.append(f'<text x="{LEFT - 10}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.0f}</text>')
    return parts


def _ticks(low: float, high: float, step: float) -> list[float]:
    return [low + step * i for i in range(round((high - low) / step) + 1)]


def _scale(low: float, high: float, bottom: float, top: float) -> Scale:
    return lambda value: bottom - (value - low) / (high - low) * (bottom - top)
