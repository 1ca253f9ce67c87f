"""JSON text, made and read as it is between programs: nothing around it, and nothing in it to please an eye.

The standard library makes an encoder for each text and looks for blanks around each value. What a call has to
say is so short that both take longer than the rest.
"""

from __future__ import annotations

import json
from json import encoder as standard
from typing import Any, Callable

_read: Callable[[str], Any] = json.JSONDecoder().raw_decode


def encoder(allow_nan: bool = True) -> Callable[[Any], str]:
    """What makes compact ASCII text of a value that holds no cycle."""
    usual = json.JSONEncoder(separators=(",", ":"), allow_nan=allow_nan)
    make: Any = standard.c_make_encoder  # pyright: ignore[reportAttributeAccessIssue]
    quoted = standard.encode_basestring_ascii
    try:
        parts = make(None, usual.default, quoted, None, ":", ",", False, False, allow_nan)
    except TypeError:  # an interpreter that has none, or one that is made otherwise
        return usual.encode
    return lambda value: "".join(parts(value, 0))


def parsed(text: str) -> Any:
    """The value of any JSON text. Raises ValueError."""
    try:
        value, end = _read(text)
    except ValueError:
        return json.loads(text)
    return value if end == len(text) else json.loads(text)
