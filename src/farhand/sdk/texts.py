"""Parameters given as text, on a command line or in a form, read as the flow's JSON Schema says."""

from __future__ import annotations

import json
from typing import Any, Dict, Set


def read_text(shape: Dict[str, Any], text: str) -> Any:
    """The value that a text means.

    A parameter that may be text takes it as it stands; any other takes JSON, and what is not JSON stays text,
    for `parameters.check` to judge.
    """
    kinds = kinds_of(shape)
    if "string" in kinds:
        return None if text == "null" and "null" in kinds else text
    try:
        return json.loads(text)
    except ValueError:
        return text


def show_value(shape: Dict[str, Any], value: Any) -> str:
    """The text that `read_text` makes this value of again."""
    if isinstance(value, str) and "string" in kinds_of(shape):
        return value
    return json.dumps(value, ensure_ascii=False)


def kinds_of(shape: Dict[str, Any]) -> Set[str]:
    """The JSON types that a schema allows; empty when it does not say."""
    said = shape.get("type", [])
    kinds = {said} if isinstance(said, str) else set(said)
    for part in (*shape.get("anyOf", ()), *shape.get("oneOf", ())):
        kinds |= kinds_of(part)
    if all(isinstance(value, str) for value in shape.get("enum", [0])):
        kinds.add("string")
    return kinds
