"""Parameters given as text on the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import InvalidParameters, Usage


def split(given: Sequence[str]) -> dict[str, str]:
    """``NAME=VALUE`` words as a mapping. Raises `Usage` for what is not one, or twice."""
    texts: dict[str, str] = {}
    for word in given:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise Usage(f"-p {word!r} is not NAME=VALUE")
        if name in texts:
            raise Usage(f"-p {name} is given twice")
        texts[name] = text
    return texts


def read_params(schema: Mapping[str, Any], given: Sequence[str]) -> dict[str, Any]:
    """The parameters in ``NAME=VALUE`` words, each read as the flow's JSON schema says.

    A text parameter takes its value as it stands; any other takes JSON, and what is not JSON stays text,
    for the server to judge. Raises `InvalidParameters` for a name that the flow does not have.
    """
    known: Mapping[str, Any] = schema.get("properties", {})
    values: dict[str, Any] = {}
    for name, text in split(given).items():
        if name not in known and schema.get("additionalProperties") is not True:
            names = ", ".join(known) or "none"
            raise InvalidParameters(f"{name}: the flow has no such parameter; it has {names}")
        values[name] = _read(known.get(name, {}), text)
    return values


def _read(shape: Mapping[str, Any], text: str) -> Any:
    kinds = _kinds(shape)
    if "string" in kinds:
        return None if text == "null" and "null" in kinds else text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _kinds(shape: Mapping[str, Any]) -> set[str]:
    """The JSON types that a schema allows; empty when it does not say."""
    said = shape.get("type", [])
    kinds = {said} if isinstance(said, str) else set(said)
    for part in (*shape.get("anyOf", ()), *shape.get("oneOf", ())):
        kinds |= _kinds(part)
    if all(isinstance(value, str) for value in shape.get("enum", [0])):
        kinds.add("string")
    return kinds
