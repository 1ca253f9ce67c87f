"""What the server counts of itself."""

from __future__ import annotations

from farhand.engine.bus import Bus, Notice
from farhand.engine.vitals import Histogram, Vitals
from tests.unit.web.fakes import make_run


def test_a_histogram_counts_what_is_at_most_each_bound() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.observe(value)
    assert histogram.cumulative() == [(1.0, 2), (2.0, 3), (float("inf"), 4)]
    assert histogram.sum == 12.0


def test_ends_of_runs_are_counted_by_state() -> None:
    bus = Bus()
    vitals = Vitals(bus)
    for state in ("running", "completed", "failed", "completed"):
        bus.publish(Notice("run", "r", make_run(state=state)))
    bus.publish(Notice("logs", "r"))
    assert vitals.ended == {"completed": 2, "failed": 1}
