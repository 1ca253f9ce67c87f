"""A form for a flow's parameters, out of its schema; and the parameters out of what was filled in. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import InvalidParameters
from ...sdk.texts import kinds_of, read_text, show_value

Json = dict[str, Any]

PREFIX = "p."
"""What the names of the parameters' fields begin with."""

_YES_NO = ("true", "false")
_WORDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "yes or no",
    "array": "list, as JSON",
    "object": "object, as JSON",
    "null": "null",
}


@dataclass(frozen=True, slots=True)
class Field:
    """One parameter. ``default`` and ``value`` are texts; ``choices`` are all the texts that it takes."""

    name: str
    says: str
    required: bool
    default: str
    value: str
    error: str
    choices: tuple[str, ...] = ()
    long: bool = False


def fields(
    schema: Json, filled: Mapping[str, str] | None = None, error: InvalidParameters | None = None
) -> list[Field]:
    """A field a parameter, with what was filled in and what is wrong with it."""
    filled = filled or {}
    at_fault, told = ("", "") if error is None else fault(error)
    needed = frozenset(schema.get("required", ()))
    return [
        Field(
            name,
            describe(shape),
            name in needed,
            show_value(shape, shape["default"]) if "default" in shape else "",
            filled.get(name, ""),
            told if name == at_fault else "",
            _choices(shape),
            not _choices(shape) and bool(kinds_of(shape) & {"array", "object"}),
        )
        for name, shape in schema.get("properties", {}).items()
    ]


def fault(error: InvalidParameters) -> tuple[str, str]:
    """The parameter that an error is about, and what it says of it."""
    place, colon, told = str(error).partition(": ")
    name = str(error.details.get("field") or place)
    return (name.partition(".")[0].partition("[")[0], told) if colon else ("", str(error))


def filled_in(form: Mapping[str, list[str]]) -> dict[str, str]:
    """The texts of the parameters' fields. One left empty is as good as not there."""
    return {
        name.removeprefix(PREFIX): texts[-1].replace("\r\n", "\n")
        for name, texts in form.items()
        if name.startswith(PREFIX) and texts[-1].strip()
    }


def params_of(schema: Json, filled: Mapping[str, str]) -> Json:
    """The parameters that were filled in, read as the schema says."""
    shapes = schema.get("properties", {})
    return {name: read_text(shapes.get(name, {}), text) for name, text in filled.items()}


def filled_with(schema: Json, params: Json) -> dict[str, str]:
    """What to fill in for these parameters."""
    shapes = schema.get("properties", {})
    return {name: show_value(shapes[name], value) for name, value in params.items() if name in shapes}


def describe(shape: Json) -> str:
    """What a parameter takes, in words."""
    if "enum" in shape:
        return "one of " + ", ".join(str(value) for value in shape["enum"])
    parts = [describe(part) for part in (*shape.get("anyOf", ()), *shape.get("oneOf", ()))]
    if parts:
        return " or ".join(dict.fromkeys(parts))
    if shape.get("format"):
        return str(shape["format"]).replace("-", " ")
    said = shape.get("type", "")
    kinds = [said] if isinstance(said, str) else list(said)
    return " or ".join(_WORDS.get(kind, kind) for kind in kinds if kind) or "any JSON"


def _choices(shape: Json) -> tuple[str, ...]:
    if "enum" in shape:
        return tuple(show_value(shape, value) for value in shape["enum"])
    return _YES_NO if shape.get("type") == "boolean" else ()
