from __future__ import annotations

from pathlib import Path

from benchmarks import references


def test_every_reference_takes_some_time(tmp_path: Path) -> None:
    known = references.measure(tmp_path)
    assert known.python_s > known.round_trip_s > 0
    assert known.commit_s > 0
