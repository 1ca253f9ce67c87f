"""The weather example: its figures, its flaky source, its files."""

from __future__ import annotations

import csv
import importlib
import io
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "weather"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def weather() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLE))
        yield importlib.import_module("weather")


def day(date: str, rain_mm: float, low: float, high: float) -> dict[str, Any]:
    return {"date": date, "rain_mm": rain_mm, "low": low, "high": high}


DAYS = [
    day("2012-01-01", 0.0, 5.0, 13.0),
    day("2012-01-02", 10.9, 2.8, 10.6),
    day("2012-02-01", 0.3, 1.0, 7.0),
]


def test_a_year_is_summarised_by_its_days(weather: ModuleType) -> None:
    summary = weather.summarise_year(DAYS)
    assert summary | {"host": "", "pid": 0} == {
        "year": 2012,
        "mean": 6.57,
        "lowest": 1.0,
        "highest": 13.0,
        "rain_days": 2,
        "precipitation_mm": 11.2,
        "wettest_day": "2012-01-02",
        "wettest_mm": 10.9,
        "host": "",
        "pid": 0,
    }
    assert summary["pid"] == os.getpid()


def test_the_source_breaks_off_as_often_as_it_is_told_to(weather: ModuleType) -> None:
    for _ in range(2):
        with pytest.raises(ConnectionError, match="connection reset after"):
            weather.read_over_a_bad_line(weather.SOURCE, "a line", 2)
    assert weather.read_over_a_bad_line(weather.SOURCE, "a line", 2).startswith("date,precipitation")


def test_one_bad_line_does_not_break_another(weather: ModuleType) -> None:
    with pytest.raises(ConnectionError):
        weather.read_over_a_bad_line(weather.SOURCE, "line one", 1)
    with pytest.raises(ConnectionError):
        weather.read_over_a_bad_line(weather.SOURCE, "line two", 1)


def test_months_are_in_order_with_their_means_and_sums(weather: ModuleType) -> None:
    first, second = weather.by_month(list(reversed(DAYS)))
    assert first["month"] == "2012-01"
    assert first["mean"] == pytest.approx(7.85)
    assert first["rain_mm"] == pytest.approx(10.9)
    assert second["month"] == "2012-02"


def test_the_yearly_table_is_read_back_as_csv(weather: ModuleType) -> None:
    text = weather.as_csv([weather.summarise_year(DAYS)])
    (row,) = csv.DictReader(io.StringIO(text))
    assert list(row) == weather.COLUMNS
    assert row["wettest_day"] == "2012-01-02"


def test_the_chart_is_svg_with_a_bar_a_month_and_a_title(weather: ModuleType) -> None:
    root = ET.fromstring(weather.draw(weather.by_month(DAYS)))
    assert root.tag == f"{SVG}svg"
    assert "2012-01" in (root.findtext(f"{SVG}title") or "")
    bars = [
        bar
        for bar in root.iter(f"{SVG}rect")
        if bar.get("class") == "rain" and bar.find(f"{SVG}title") is not None
    ]
    assert len(bars) == 2


def test_the_data_has_four_whole_years(weather: ModuleType) -> None:
    rows = list(csv.DictReader(weather.SOURCE.read_text().splitlines()))
    assert len(rows) == 1461
    assert (rows[0]["date"], rows[-1]["date"]) == ("2012/01/01", "2015/12/31")


def test_the_example_runs_as_a_plain_script(tmp_path: Path) -> None:
    environment = {**os.environ, "FARHAND_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, str(EXAMPLE / "weather.py")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "2015: 13.1" in done.stdout
    assert len(list((tmp_path / "home" / "inbox").glob("*.jsonl"))) == 1
