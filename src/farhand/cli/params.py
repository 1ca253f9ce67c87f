"""Parameters given as text on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import InvalidParameters, Usage
from ..sdk.texts import read_text


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
        values[name] = read_text(known.get(name, {}), text)
    return values
