"""The page on which runs are compared, without a browser."""

from __future__ import annotations

import re
from typing import Any

from farhand.model import MetricPoint

from .fakes import T0, FakeServices, make_run, signed_in


def test_runs_are_compared_the_oldest_first(app: Any, services: FakeServices) -> None:
    services.runs.items["0run2"] = make_run("0run2", created_at=T0 + 9, params='{"lr":0.7}')
    services.runs.points = [MetricPoint(n, T0 + n, {"loss": 1.0 / n}, None) for n in (1, 2)]
    text = signed_in(app).get("/compare?run=0run2&run=0run1&run=0run2").text
    assert text.index("runs/0run1") < text.index("runs/0run2")
    assert re.search(r'class="differs"><th scope="row">lr .*?<td>0\.1</td>\s*<td>0\.7</td>', text, re.DOTALL)
    assert 'class="same"><th scope="row">state' in text
    assert text.count('<polyline class="s1"') == 1


def test_a_series_of_a_single_point_is_compared_as_a_point(app: Any, services: FakeServices) -> None:
    services.runs.items["0run2"] = make_run("0run2")
    services.runs.points = [MetricPoint(1, T0, {"mean": 2.5}, None)]
    page = signed_in(app).get("/compare?run=0run1&run=0run2").text
    assert re.findall(r'<circle class="(s\d)"', page) == ["s0", "s1"]
    assert "<polyline" not in page


def test_one_run_is_no_comparison(app: Any) -> None:
    assert "Two runs or more" in signed_in(app).get("/compare?run=0run1").text
