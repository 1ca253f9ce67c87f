"""The lines of a worker: as the logging module would stamp them, only cheaper."""

from __future__ import annotations

import logging

import pytest

from farhand_worker.speaking import Stamped


@pytest.mark.parametrize("created", [0.0, 1.5, 1.999, 2.0, 1_700_000_000.25])
def test_a_line_has_time_and_level_as_the_library_would_write_them(created: float) -> None:
    record = logging.LogRecord("farhand.worker", logging.WARNING, "", 0, "run %s", ("a",), None)
    record.created, record.msecs = created, created % 1 * 1000
    stamped = Stamped()
    usual = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    for _ in range(2):
        assert stamped.format(record) == usual.format(record)
