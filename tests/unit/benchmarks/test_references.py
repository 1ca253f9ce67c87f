from __future__ import annotations

from pathlib import Path

from benchmarks import references
from benchmarks.__main__ import ms


def test_every_reference_takes_some_time(tmp_path: Path) -> None:
    known = references.measure(tmp_path)
    assert known.python_s > known.round_trip_s > 0
    assert known.commit_s > 0


def test_a_time_is_told_in_milliseconds() -> None:
    assert ms(0.0012345).strip() == "1.234 ms"
