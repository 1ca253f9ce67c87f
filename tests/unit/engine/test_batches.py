"""The quick way to read reports agrees with the long one, and leaves to it what it does not take."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farhand.engine.batches import quick
from farhand.engine.reports import _typed
from farhand_worker import protocol

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | TEXT, lambda inner: st.lists(inner, max_size=3)
)
LOGS = st.builds(protocol.Log, st.floats(0, 1e10), TEXT, TEXT, TEXT, st.none() | TEXT)
METRICS = st.builds(
    protocol.Metric, st.floats(0, 1e10), st.dictionaries(TEXT, st.floats(-1e9, 1e9)), st.none() | TEXT
)
ENDS = st.builds(
    protocol.Checkpoint, TEXT, TEXT, TEXT, st.just(1), st.just(2), value=st.dictionaries(TEXT, JSON)
)
EVENTS = st.lists(LOGS | METRICS | ENDS, max_size=5)


def frame(events: list[Any]) -> str:
    lines = [json.dumps([event.kind, protocol.as_dict(event)]) for event in events]
    return protocol.encode_events("job", 7, "engine", 3, lines)


@given(events=EVENTS)
def test_both_ways_read_the_same(events: list[Any]) -> None:
    text = frame(events)
    (found,) = quick(text) or []
    long = protocol.decode(text)
    assert (found.job, found.lease, found.source, found.first) == ("job", 7, "engine", 3)
    assert found.events == _typed(long).events


def test_several_messages_in_one_frame_are_read_in_their_order() -> None:
    texts = [frame([protocol.Log(1.0, "x")]), protocol.encode(protocol.Accepted("j", 2)), frame([])]
    found = quick(protocol.encode_several(texts)) or []
    assert [type(message) for message in found] == [protocol.Event, protocol.Accepted, protocol.Event]
    assert found[:2] == [
        protocol.Event("job", 7, "engine", 3, [protocol.Log(1.0, "x")]),  # type: ignore[list-item]
        protocol.Accepted("j", 2),
    ]


def test_digests_after_the_body_are_passed_over() -> None:
    text = protocol.encode_events("j", 1, "engine", 1, ['["log",{"at":1,"text":"x"},["sha256:0"]]'])
    (found,) = quick(text) or []
    assert found.events == [protocol.Log(1.0, "x")]


@pytest.mark.parametrize(
    "text",
    [
        protocol.encode(protocol.Heartbeat(1)),
        protocol.encode_several([protocol.encode(protocol.Heartbeat(1)), frame([])]),
        protocol.encode_events("j", 1, "engine", 1, ['["log",{"at":1,"text":"half a \\ud800"}]']),
        protocol.encode_events("j", 1, "engine", 1, ['["unheard of",{}]']),
        protocol.encode_events("j", 1, "engine", 1, ['["log",{"at":1}]']),
        protocol.encode_events("j", 1, "engine", 1, ['["metric",{"at":1,"values":{"x":NaN}}]']),
    ],
)
def test_what_it_does_not_take_is_left_to_the_long_way(text: str) -> None:
    assert quick(text) is None
