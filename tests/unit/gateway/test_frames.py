"""What is encoded the quick way is read as what the standard encoder writes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from farhand.gateway.frames import encode
from farhand_worker import protocol

ARGS = {"enc": "json", "text": '[[1, "\u00fc"], {}]', "n": 1.5, "none": None, "list": [1, {"a": True}]}


@pytest.mark.parametrize(
    "message",
    [
        protocol.Probe(),
        protocol.Ack(n=3),
        protocol.Ack(job="j", lease=7, source="engine", seq=2),
        protocol.Assign("j", 1, 1, "call", "r", "f", "m:f", ARGS, "sha256:b"),
        protocol.Outcome("j", 1, "k", {"key": "k", "value": ARGS, "started_at": 1700000000.123456}),
        protocol.Outcome("j", 1, "k", {"half": "\ud800", "whole": "\U0001f600"}),
        protocol.Outcome("j", 1, "k", {"large": 2**70}),
        protocol.Set(draining=True),
    ],
)
def test_a_message_is_the_same_either_way(message: Any) -> None:
    text = encode(message)
    assert json.loads(text) == json.loads(protocol.encode(message))
    assert protocol.decode(text) == message
