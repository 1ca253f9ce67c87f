"""Words and numbers as people read them in the console."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from farhand.web.pages.wording import duration, mebibytes, number, pretty, said, sentence, size

from .fakes import make_run


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"state": "queued", "message": "gpu1 is busy"}, "Queued: gpu1 is busy."),
        ({"state": "running", "worker": "gpu1", "attempt": 2}, "Running on gpu1, attempt 2."),
        ({"state": "running", "worker": "gpu1", "message": "running on gpu1"}, "Running on gpu1."),
        (
            {
                "state": "running",
                "worker": "box",
                "message": "running on box; fit waits for gpu",
                "attempt": 2,
            },
            "Running on box, attempt 2; fit waits for gpu.",
        ),
        (
            {"state": "starting", "worker": "gpu1", "message": "handed to gpu1"},
            "Starting on gpu1: handed to gpu1.",
        ),
        ({"state": "failed", "message": "long "}, "Failed: long."),
        ({"state": "completed", "message": "x"}, "Completed on server."),
        ({"state": "crashed", "reason": "worker_lost"}, "Crashed: worker lost."),
        ({"state": "cancelled", "reason": "cancelled", "message": ""}, "Cancelled."),
    ],
)
def test_a_state_is_told_in_a_sentence(changes: dict[str, Any], text: str) -> None:
    assert sentence(replace(make_run(), **changes), []) == text


def test_numbers_are_told_as_people_read_them() -> None:
    assert [duration(s) for s in (0.0123, 3.21, 245, 7800, 273_600)] == [
        "12 ms",
        "3.2 s",
        "4 min 05 s",
        "2 h 10 min",
        "3 d 4 h",
    ]
    assert [size(n) for n in (5, 2048, 5 * 1024**3)] == ["5 B", "2.0 KiB", "5.0 GiB"]
    assert number(0.123456) == "0.1235"
    assert [mebibytes(24152), mebibytes(512)] == ["23.6 GiB", "512.0 MiB"]
    assert said("you are out.") == "You are out."


def test_json_is_shown_on_as_few_lines_as_can_be_read() -> None:
    assert pretty('{"a":[1,2]}') == '{"a": [1, 2]}'
    assert pretty('{"a":[1,2],"b":"%s"}' % ("x" * 60)).splitlines()[1] == '  "a": [1, 2],'
    assert pretty("no json") == "no json"
    assert pretty("[" + "1," * 30_000 + "1]").endswith("in all)")
