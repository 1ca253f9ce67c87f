"""What is answered to who reads along, and when."""

from __future__ import annotations

from typing import Any

import pytest

from farhand.engine.streams import AGAIN, NEVER, Asked, answer
from farhand.store.streams import StreamPage

VALUES = ({"enc": "json", "text": "1"}, {"enc": "json", "text": "2"})


def page(state: str = "open", total: int = 2, last: int = 2, *values: Any, tries: int = 1) -> StreamPage:
    return StreamPage(tries, state, "no luck" if state == "broken" else "", total, last, values)


@pytest.mark.parametrize(
    ("asked", "found", "said"),
    [
        ({}, None, {"state": "broken", "message": NEVER}),
        ({}, page("open", 2, 2, *VALUES), {"tries": 1, "state": "open", "last": 2, "values": list(VALUES)}),
        ({"after": 2}, page("open", 2, 2), None),
        ({"after": 2}, page("ended", 2, 2), {"tries": 1, "state": "ended", "last": 2, "values": []}),
        ({}, page("ended", 2, 2, *VALUES), {"tries": 1, "state": "ended", "last": 2, "values": list(VALUES)}),
        ({}, page("ended", 9, 2, *VALUES), {"tries": 1, "state": "open", "last": 2, "values": list(VALUES)}),
        ({}, page("broken", 2, 2, *VALUES), {"state": "broken", "message": "no luck"}),
        ({"tries": 1}, page("open", 2, 2, *VALUES, tries=2), {"state": "broken", "message": AGAIN}),
        ({"tries": 2, "after": 2}, page("open", 2, 2, tries=2), None),
        ({"ready": True}, None, None),
        ({"ready": True}, page("open", 0, 0), None),
        ({"ready": True}, page("open", 1, 1), {"state": "open"}),
        ({"ready": True}, page("ended", 0, 0), {"state": "open"}),
        ({"ready": True}, page("broken", 1, 1), None),
    ],
)
def test_an_answer_comes_once_there_is_something_to_say(
    asked: dict[str, Any], found: StreamPage | None, said: dict[str, Any] | None
) -> None:
    assert answer(Asked.read({"key": "k", "name": "loss", **asked}), found) == said


@pytest.mark.parametrize("args", [{}, {"key": "k"}, {"key": "k", "name": "n", "after": "x"}])
def test_a_question_that_is_none_is_refused(args: dict[str, Any]) -> None:
    with pytest.raises((KeyError, ValueError)):
        Asked.read(args)
