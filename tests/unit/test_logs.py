"""The server's own log as JSON."""

from __future__ import annotations

import json
import logging
import sys

from farhand.logs import JsonFormatter


def test_a_record_is_one_object_on_one_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.LogRecord("farhand", logging.ERROR, "", 1, "job %s failed", ("j1",), sys.exc_info())
    line = JsonFormatter().format(record)
    assert "\n" not in line
    told = json.loads(line)
    assert (told["level"], told["logger"], told["message"]) == ("error", "farhand", "job j1 failed")
    assert "ValueError: two\nlines" in told["error"]
    assert told["at"].endswith("+00:00")
