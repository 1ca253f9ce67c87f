"""Messages to workers as texts, encoded the quick way: nearly every byte to a worker goes through here."""

from __future__ import annotations

from typing import Any

import msgspec

from farhand_worker import protocol

_encode = msgspec.json.Encoder().encode


def encode(message: Any) -> str:
    """The text that `protocol.encode` makes, but for the escapes of what is not ASCII.

    What only the standard encoder takes (half a surrogate pair, a number of more than 64 bits) is left to it.
    """
    try:
        fields = _encode(message).decode()
    except (UnicodeEncodeError, OverflowError):
        return protocol.encode(message)
    return f'{{"type":"{message.type}"}}' if fields == "{}" else f'{{"type":"{message.type}",{fields[1:]}'
