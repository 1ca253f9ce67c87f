"""Frames of the channel, however the bytes arrive."""

from __future__ import annotations

import json
import struct
from typing import Any, cast

import pytest

from farhand_worker.channel import Channel, ChannelBroken, Unpacker, pack


def test_frames_come_out_whole_when_bytes_come_one_by_one() -> None:
    unpacker = Unpacker()
    stream = pack({"type": "a"}) + pack({"type": "b", "text": "é"})
    frames = [frame for i in range(len(stream)) for frame in unpacker.feed(stream[i : i + 1])]
    assert frames == [({"type": "a"}, b""), ({"type": "b", "text": "é"}, b"")]


def test_raw_bytes_follow_a_header_whose_body_is_a_number() -> None:
    unpacker = Unpacker()
    header = json.dumps({"type": "a", "body": 3}).encode()
    assert unpacker.feed(struct.pack(">I", len(header)) + header + b"xy") == []
    assert unpacker.feed(b"z" + pack({"type": "b"})) == [
        ({"type": "a", "body": 3}, b"xyz"),
        ({"type": "b"}, b""),
    ]


@pytest.mark.parametrize(
    "junk", [b"\xff\xff\xff\xff", struct.pack(">I", 3) + b"abc", struct.pack(">I", 1) + b"1"]
)
def test_what_is_no_frame_breaks_the_channel(junk: bytes) -> None:
    with pytest.raises(ChannelBroken):
        Unpacker().feed(junk)


class Transport:
    """Remembers each writing."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def is_closing(self) -> bool:
        return False

    def write(self, content: bytes) -> None:
        self.written.append(content)


def test_what_is_held_goes_in_its_order_with_what_follows_or_when_it_is_let_go() -> None:
    channel, transport = Channel(lambda _: None, lambda: None), Transport()
    channel.connection_made(cast(Any, transport))
    channel.hold("a")
    channel.hold("b")
    assert transport.written == []
    channel.flush()
    channel.flush()
    channel.hold("c")
    channel.send("d")
    frames = [pack({"type": kind}) for kind in "abcd"]
    assert transport.written == [frames[0] + frames[1], frames[2] + frames[3]]
