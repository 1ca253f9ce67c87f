"""Large bytes among a call's arguments, which stand before the pickle of all the rest.

They are hashed for the call's key, and the file that carries the arguments is named by the hash of all of it.
Where they come first there, that hash goes on from theirs: each byte is hashed once.
"""

from __future__ import annotations

import pickle
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

Hashed = Dict[int, Any]
"""The SHA-256 of bytes, by the id of what lives on."""


class Front(NamedTuple):
    """What comes first in a file, and the SHA-256 of it."""

    content: bytes
    sha256: Any


def front_of(args: Tuple[Any, ...], kwargs: Dict[str, Any], hashed: Optional[Hashed]) -> Optional[Front]:
    """The largest of the arguments that were hashed, if any was."""
    if not hashed:
        return None
    found = [value for value in (*args, *kwargs.values()) if id(value) in hashed]
    if not found:
        return None
    content = max(found, key=len)
    return Front(content, hashed[id(content)])


def set_apart(given: List[Any], content: bytes) -> Tuple[List[Any], pickle.PickleBuffer]:
    """Arguments with a buffer in the place of some bytes, and that buffer, to be left out of their pickle."""
    args, kwargs = given
    apart = pickle.PickleBuffer(content)
    for number, value in enumerate(args):
        if value is content:
            return [[*args[:number], apart, *args[number + 1 :]], kwargs], apart
    name = next(name for name, value in kwargs.items() if value is content)
    return [args, {**kwargs, name: apart}], apart
