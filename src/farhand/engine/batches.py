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
    tag=protocol.Event.type,
)
_ACCEPTED: Any = msgspec.defstruct(
    "_Accepted",
    [("job", str), ("lease", int), ("started_at", float | None, None)],
    tag=protocol.Accepted.type,
)
_SEVERAL: Any = msgspec.defstruct("_Several", [("messages", list[_FRAME | _ACCEPTED])])
_HEAD = '{"type":"event",'
_HEAD_OF_SEVERAL = '{"type":"several",'
_decode = msgspec.json.Decoder(_FRAME, strict=False).decode
_decode_several = msgspec.json.Decoder(_SEVERAL, strict=False).decode


def quick(text: str) -> list[Any] | None:
    """The messages in a frame, `Event` with typed bodies for ``events``; None when this is not the way to
    read it."""
    try:
        if text.startswith(_HEAD):
            return [_message(_decode(text))]
        if text.startswith(_HEAD_OF_SEVERAL):
            return list(map(_message, _decode_several(text).messages))
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    return None


def _message(frame: Any) -> Any:
    if type(frame) is _ACCEPTED:
        return protocol.Accepted(frame.job, frame.lease, frame.started_at)
    bodies: list[Any] = [entry.body for entry in frame.events]
    event = object.__new__(protocol.Event)  # the class sets each field of a frozen one by a call
    vars(event).update(
        job=frame.job, lease=frame.lease, source=frame.source, first=frame.first, events=bodies
    )
    return event
