"""What a parameter accepts: kinds with a JSON Schema each, and the kind of a schema.

The same kinds are built from annotations (`annotations`) and from a schema here, so that server, command
line and engine take and refuse the same values. A kind from a schema checks; what it makes is not used.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from farhand.errors import InvalidParameters

from .scalars import Convert, Schema, Unfit, anything, of_schema

IN_ENGINE = "x-checked-in"
"""Marks the schema of a class of the user's own, which says yes or no itself, where the flow runs."""


class Kind:
    """A schema, and ``convert(value, field)``."""

    def __init__(self, schema: Schema, convert: Convert = anything) -> None:
        self.schema = schema
        self._convert = convert

    def convert(self, value: Any, field: str) -> Any:
        """The value as the function gets it. Raises `InvalidParameters` naming the field."""
        try:
            return self._convert(value)
        except Unfit as unfit:
            raise refusal(field, str(unfit)) from None


def refusal(field: str, text: str) -> InvalidParameters:
    """The exception for a value of ``field``."""
    return InvalidParameters(f"{field}: {text}", field=field)


class Choice(Kind):
    """One of a few values. ``known``: what may be given and what it means; ``names``: other words for it."""

    def __init__(self, schema: Schema, known: Sequence[Tuple[Any, Any]], names: Dict[str, Any]) -> None:
        super().__init__(schema)
        self._known = list(known)
        self._names = names

    def convert(self, value: Any, field: str) -> Any:
        for given, meant in self._known:
            if value is meant or (type(value) is type(given) and value == given):
                return meant
        if isinstance(value, str):
            if value in self._names:
                return self._names[value]
            for given, meant in self._known:
                if value == str(given):
                    return meant
        raise refusal(field, f"must be one of {', '.join(str(given) for given, _ in self._known)}")


class Either(Kind):
    """One of several kinds: the first that takes the value as it is, else the first that can convert it."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        super().__init__({"anyOf": [kind.schema for kind in kinds]})
        self._kinds = list(kinds)

    def convert(self, value: Any, field: str) -> Any:
        converted: List[Any] = []
        refusals: List[str] = []
        for kind in self._kinds:
            try:
                made = kind.convert(value, field)
            except InvalidParameters as error:
                refusals.append(
                    str(error)[len(field) + 2 :] if str(error).startswith(f"{field}: ") else str(error)
                )
                continue
            if type(made) is type(value) and made == value:
                return made
            converted.append(made)
        if converted:
            return converted[0]
        said = [text for text in dict.fromkeys(refusals) if text != "must be null"]
        raise refusal(field, ", or ".join(said) or "must be null")


class Items(Kind):
    """A list of one kind; ``make`` builds the collection that the annotation names."""

    def __init__(self, inner: Kind, make: Callable[[List[Any]], Any] = list, lenient: bool = False) -> None:
        schema: Schema = {"type": "array", "items": inner.schema}
        if make in (set, frozenset):
            schema["uniqueItems"] = True
        super().__init__(schema)
        self._inner = inner
        self._make = make
        self._takes = (list, tuple, set, frozenset) if make in (set, frozenset) else (list, tuple)
        self._lenient = lenient

    def convert(self, value: Any, field: str) -> Any:
        if not isinstance(value, self._takes):
            if self._lenient and not isinstance(value, (str, bytes, dict, int, float, type(None))):
                return value  # a range, an array: it is for the flow to use
            raise refusal(field, "must be a list")
        items = [self._inner.convert(item, f"{field}[{index}]") for index, item in enumerate(value)]
        try:
            return self._make(items)
        except TypeError:
            raise refusal(field, "its items must be hashable") from None


class Row(Kind):
    """A tuple of a fixed length, each place of its own kind."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        count = len(kinds)
        super().__init__(
            {
                "type": "array",
                "prefixItems": [kind.schema for kind in kinds],
                "minItems": count,
                "maxItems": count,
            }
        )
        self._kinds = list(kinds)

    def convert(self, value: Any, field: str) -> Any:
        if not isinstance(value, (list, tuple)) or len(value) != len(self._kinds):
            raise refusal(field, f"must be a list of {len(self._kinds)} values")
        return tuple(
            kind.convert(item, f"{field}[{index}]")
            for index, (kind, item) in enumerate(zip(self._kinds, value))  # noqa: B905 - not in Python 3.9
        )


class Mapping(Kind):
    """An object of any names, its values of one kind, its keys made of their text."""

    def __init__(self, inner: Kind, keys: Optional[Kind] = None) -> None:
        schema: Schema = {"type": "object", "additionalProperties": inner.schema}
        if keys is not None and keys.schema not in ({}, {"type": "string"}):
            schema["propertyNames"] = keys.schema
        super().__init__(schema)
        self._inner = inner
        self._keys = keys if "propertyNames" in schema else None

    def convert(self, value: Any, field: str) -> Any:
        if not isinstance(value, dict):
            raise refusal(field, "must be an object")
        return {
            self._key(name, field): self._inner.convert(item, f"{field}.{name}")
            for name, item in value.items()
        }

    def _key(self, name: Any, field: str) -> Any:
        if self._keys is not None:
            return self._keys.convert(name, f"{field}, a key")
        if not isinstance(name, str):
            raise refusal(field, "its keys must be text")
        return name


class Fields(Kind):
    """An object of known names: a dataclass, a typed dict, a named tuple. ``make`` gets them by keyword."""

    def __init__(
        self,
        fields: Dict[str, Kind],
        required: Sequence[str],
        title: str = "",
        wanted: Optional[type] = None,
        make: Callable[..., Any] = dict,
    ) -> None:
        schema: Schema = {
            "type": "object",
            "properties": {name: kind.schema for name, kind in fields.items()},
            "required": list(required),
            "additionalProperties": False,
        }
        super().__init__({**schema, "title": title} if title else schema)
        self._fields = fields
        self._required = list(required)
        self._wanted = wanted
        self._make = make

    def convert(self, value: Any, field: str) -> Any:
        if self._wanted is not None and isinstance(value, self._wanted):
            return value
        if not isinstance(value, dict):
            raise refusal(field, "must be an object")
        for name in self._required:
            if name not in value:
                raise refusal(f"{field}.{name}", "is missing")
        for name in value:
            if name not in self._fields:
                raise refusal(
                    f"{field}.{name}", f"there is no such field; there are: {', '.join(self._fields)}"
                )
        made = {name: self._fields[name].convert(item, f"{field}.{name}") for name, item in value.items()}
        try:
            return self._make(**made)
        except Exception as error:
            raise refusal(field, f"{self.schema.get('title')} refused it ({type(error).__name__})") from error


def kind_of_schema(schema: Any) -> Kind:
    """The kind that has this schema; what the schema does not say is left open."""
    if not isinstance(schema, dict) or IN_ENGINE in schema:
        return Kind({})
    if "enum" in schema:
        known = [(value, value) for value in schema["enum"]]
        return Choice(schema, known, {name: name for name in schema.get("x-names", ())})
    if "anyOf" in schema:
        return Either([kind_of_schema(option) for option in schema["anyOf"]])
    convert = of_schema(schema)
    if convert is not None:
        return Kind(schema, convert)
    if schema.get("type") == "array":
        if "prefixItems" in schema:
            return Row([kind_of_schema(item) for item in schema["prefixItems"]])
        return Items(kind_of_schema(schema.get("items", {})))
    if schema.get("type") == "object":
        if "properties" in schema:
            fields = {name: kind_of_schema(inner) for name, inner in schema["properties"].items()}
            return Fields(fields, schema.get("required", ()))
        keys = schema.get("propertyNames")
        return Mapping(kind_of_schema(schema.get("additionalProperties", {})), keys and kind_of_schema(keys))
    return Kind({})
