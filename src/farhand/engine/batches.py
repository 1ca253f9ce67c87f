"""The frames that carry reports, decoded in one pass: text in, typed events out.

This is where nearly every byte from a worker goes through. Whatever the quick way does not take (half a
surrogate pair, a field of another type, an unknown kind) goes the long way, which takes it or says why not.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

import msgspec

from farhand_worker import protocol


def _entry(cls: type[Any]) -> Any:
    """``[kind, body]`` or ``[kind, body, digests]`` as a type."""
    fields = [("body", cls), ("digests", list[str] | None, None)]
    return msgspec.defstruct(f"_{cls.__name__}", fields, array_like=True, tag=cls.kind)


_ENTRIES: Any = reduce(or_, map(_entry, protocol.EVENTS.values()))
_FRAME: Any = msgspec.defstruct(
    "_Frame",
    [("job", str), ("lease", int), ("source", str), ("first", int), ("events", list[_ENTRIES])],
)
_HEAD = '{"type":"event",'
_decode = msgspec.json.Decoder(_FRAME, strict=False).decode


def quick(text: str) -> protocol.Event | None:
    """The `Event` in a frame, with typed bodies for ``events``; None when this is not the way to read it."""
    if not text.startswith(_HEAD):
        return None
    try:
        frame = _decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    bodies: list[Any] = [entry.body for entry in frame.events]
    return protocol.Event(frame.job, frame.lease, frame.source, frame.first, bodies)
