"""Frames of the channel, however the bytes arrive."""

from __future__ import annotations

import json
import struct

import pytest

from farhand_worker.channel import ChannelBroken, Unpacker, pack


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
