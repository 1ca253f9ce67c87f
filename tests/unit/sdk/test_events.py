"""The lines of a spool that are built by hand."""

from __future__ import annotations

from farhand.sdk import events


def test_the_lines_that_are_built_by_hand_are_what_the_general_one_would_be() -> None:
    value = {"enc": "json", "text": '"ö"'}
    assert events.completed(1.5, value, ["sha256:0"]) == events.line(
        "result", {"state": "completed", "at": 1.5, "value": value}, ["sha256:0"]
    )
    where = {"pid": 7, "host": "mühle"}
    assert events.started(1.5, events.members(where), "a run") == events.line(
        "started", {"at": 1.5, "name": "a run", **where}
    )
    step = {"name": "fit", "ask": {"cpus": None}}
    body = {"key": "k", **step, "args": value, "at": 1.5, "scope": "", "index": 3, "needs": ["n"]}
    more = events.members({"needs": ["n"], "nested": None})
    assert events.placed("k", events.members(step), value, 1.5, "", 3, more, []) == events.line("call", body)
