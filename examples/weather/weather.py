"""Four years of Seattle's weather: fetched over a bad line, summarised a year at a time, drawn.

Run it here with ``python weather.py``, or serve it with ``farhand serve examples/weather``. The part
that is worth another machine, `summarise_year`, asks for the label ``demo``: with such a worker
attached each year goes to it, otherwise everything runs in one place.
"""

from __future__ import annotations

import csv
import os
import platform
from collections import Counter
from pathlib import Path
from typing import Any

from weather_chart import draw

from farhand import current_run, emit, flow, save_artifact, task

SOURCE = Path(__file__).with_name("seattle-weather.csv")
COLUMNS = ["year", "mean", "lowest", "highest", "rain_days", "precipitation_mm", "wettest_day", "wettest_mm"]
WET_MM = 0.25
"""A day counts as a day of rain from a hundredth of an inch on, as the weather service counts."""

Day = dict[str, Any]
Summary = dict[str, Any]

_interrupted: Counter = Counter()


def read_over_a_bad_line(path: Path, line: str, failures: int) -> str:
    """The file's text; the first ``failures`` reads over the same ``line`` break off half way."""
    text = path.read_text(encoding="ascii")
    if _interrupted[line] < failures:
        _interrupted[line] += 1
        half = len(text) // 2
        raise ConnectionError(f"connection reset after {half} of {len(text)} bytes")
    return text


@task(retries=3, retry_delay=0.2)
def extract(line: str, failures: int) -> list[Day]:
    """The daily table, oldest day first. The source is flaky, hence the retries."""
    text = read_over_a_bad_line(SOURCE, line, failures)
    days = [
        {
            "date": row["date"].replace("/", "-"),
            "rain_mm": float(row["precipitation"]),
            "low": float(row["temp_min"]),
            "high": float(row["temp_max"]),
        }
        for row in csv.DictReader(text.splitlines())
    ]
    print(f"extracted {len(days)} days, {days[0]['date']} to {days[-1]['date']}")
    return days


@task(device="demo", device_policy="prefer")
def summarise_year(days: list[Day]) -> Summary:
    """What one year was like, and where that was worked out."""
    year = int(days[0]["date"][:4])
    wettest = max(days, key=lambda day: day["rain_mm"])
    print(f"{year}: {len(days)} days on {platform.node()}, process {os.getpid()}")
    return {
        "year": year,
        "mean": round(sum(mean_of(day) for day in days) / len(days), 2),
        "lowest": min(day["low"] for day in days),
        "highest": max(day["high"] for day in days),
        "rain_days": sum(day["rain_mm"] >= WET_MM for day in days),
        "precipitation_mm": round(sum(day["rain_mm"] for day in days), 1),
        "wettest_day": wettest["date"],
        "wettest_mm": wettest["rain_mm"],
        "host": platform.node(),
        "pid": os.getpid(),
    }


@task
def report(days: list[Day], summaries: list[Summary]) -> list[str]:
    """Save the yearly table as CSV and the monthly course as a chart; returns the artifacts' names."""
    save_artifact(as_csv(summaries).encode(), name="seattle-years.csv")
    save_artifact(draw(by_month(days)).encode(), name="seattle-weather.svg")
    return ["seattle-years.csv", "seattle-weather.svg"]


@flow
def weather(first_year: int = 2012, last_year: int = 2015, failures: int = 2) -> dict[str, Any]:
    """Summarise Seattle's weather by year, and draw it."""
    days = [
        day for day in extract(current_run().id, failures) if first_year <= int(day["date"][:4]) <= last_year
    ]
    if not days:
        raise ValueError(f"no days between {first_year} and {last_year}")
    years = sorted({day["date"][:4] for day in days})
    futures = summarise_year.map([[day for day in days if day["date"].startswith(year)] for year in years])
    summaries = []
    for future in futures:
        summary = future.result()
        emit(year=summary["year"], mean=summary["mean"], precipitation_mm=summary["precipitation_mm"])
        print(describe(summary))
        summaries.append(summary)
    return {"years": summaries, "artifacts": report(days, summaries)}


def mean_of(day: Day) -> float:
    """The mean of the day's extremes, as the weather service defines a daily mean."""
    return (day["low"] + day["high"]) / 2


def describe(summary: Summary) -> str:
    """A year in one line."""
    return (
        f"{summary['year']}: {summary['mean']:.1f} °C on average, "
        f"{summary['lowest']} to {summary['highest']} °C, "
        f"{summary['rain_days']} days of rain, {summary['precipitation_mm']:.0f} mm, "
        f"wettest {summary['wettest_day']} with {summary['wettest_mm']} mm"
    )


def as_csv(summaries: list[Summary]) -> str:
    """The yearly table as CSV text."""
    lines = [",".join(COLUMNS)]
    lines.extend(",".join(str(summary[column]) for column in COLUMNS) for summary in summaries)
    return "\n".join(lines) + "\n"


def by_month(days: list[Day]) -> list[dict[str, Any]]:
    """Each month's mean, mean low, mean high and total precipitation, in order."""
    months: dict[str, list[Day]] = {}
    for day in days:
        months.setdefault(day["date"][:7], []).append(day)
    return [
        {
            "month": month,
            "mean": sum(mean_of(day) for day in part) / len(part),
            "low": sum(day["low"] for day in part) / len(part),
            "high": sum(day["high"] for day in part) / len(part),
            "rain_mm": sum(day["rain_mm"] for day in part),
        }
        for month, part in sorted(months.items())
    ]


if __name__ == "__main__":
    weather()
