"""Charts and bars, as numbers that are drawn."""

from __future__ import annotations

from typing import Any

from farhand.model import MetricPoint, TaskRun
from farhand.web.pages.charts import POINTS_MAX, bars, charts, overlays, thin

from .fakes import T0


def test_a_chart_keeps_its_spikes_when_it_is_thinned() -> None:
    points = [MetricPoint(n, T0 + n, {"loss": 100.0 if n == 5000 else 1.0}, None) for n in range(10_000)]
    (chart,) = charts(points)
    assert (chart.high, chart.low, chart.count) == (100.0, 1.0, 10_000)
    assert len(chart.line.split()) <= 2 * POINTS_MAX
    assert min(float(p.split(",")[1]) for p in chart.line.split()) == 4.0


def test_a_chart_of_equal_or_odd_values_is_drawn_all_the_same() -> None:
    flat = charts([MetricPoint(n, T0, {"a": 2.0}, None) for n in range(3)])[0]
    assert flat.line.count(",") == 3
    odd: Any = {"a": float("nan"), "b": "Infinity", "c": 1}
    assert [chart.name for chart in charts([MetricPoint(1, T0, odd, None)])] == ["c"]
    assert thin([(1.0, 1.0)]) == [(1.0, 1.0)]


def test_bars_say_when_a_call_was_under_way() -> None:
    tasks = [
        TaskRun("r", "a", 1, "a", "completed", started_at=T0, ended_at=T0 + 5),
        TaskRun("r", "b", 2, "b", "running", started_at=T0 + 5),
        TaskRun("r", "c", 3, "c", "queued"),
    ]
    found = bars(tasks, T0 + 10)
    assert (found["a"].begin, found["a"].width, found["b"].begin) == (0, 49.5, 49.5)
    assert "c" not in found
    assert bars([], T0) == {}


def test_series_of_several_runs_share_a_scale_and_begin_together() -> None:
    first = [MetricPoint(n, T0 + n, {"loss": float(n)}, None) for n in range(3)]
    late = [MetricPoint(n, T0 + 500 + n, {"loss": float(n), "own": 1.0}, None) for n in range(3)]
    loss, own = overlays([first, late])
    assert loss.lines[0] == loss.lines[1]
    assert (loss.low, loss.high, loss.seconds) == (0.0, 2.0, 2.0)
    assert (own.lines[0], bool(own.lines[1])) == ("", True)
