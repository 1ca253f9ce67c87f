"""The kind of parameter that an annotation asks for.

A class that farhand does not know is the user's own and is constructed where the flow runs: pydantic models
by ``model_validate``, others from an object of their arguments. Nothing is imported to recognise them.
"""

from __future__ import annotations

import collections.abc
import inspect
import sys
import typing
from enum import Enum
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from farhand.errors import NotSupported

from .kinds import IN_ENGINE, Choice, Either, Fields, Items, Kind, Mapping, Row, refusal
from .scalars import Schema, anything, of_type

_UNIONS = (Union, getattr(__import__("types"), "UnionType", Union))
_LISTS: Dict[Any, Tuple[Callable[[List[Any]], Any], bool]] = {
    list: (list, False),
    set: (set, False),
    frozenset: (frozenset, False),
    collections.abc.Set: (set, False),
    collections.abc.MutableSet: (set, False),
    collections.abc.Sequence: (list, True),
    collections.abc.MutableSequence: (list, True),
    collections.abc.Iterable: (list, True),
    collections.abc.Collection: (list, True),
}
_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_WRAPPERS = ("Annotated", "Required", "NotRequired", "ReadOnly", "Final", "ClassVar")

Seen = Tuple[Any, ...]


def kind_of(annotation: Any, seen: Seen = (), scope: Any = None) -> Kind:
    """The kind of an annotation. Text is evaluated in ``scope``; classes in ``seen`` are being described."""
    if isinstance(annotation, (str, typing.ForwardRef)):
        annotation = evaluated(annotation, scope or {}, "a field")
    annotation = _unwrapped(annotation)
    scalar = of_type(annotation)
    if scalar is not None:
        return Kind(*scalar)
    if annotation is None:
        return Kind(*_scalar(type(None)))
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in _UNIONS:
        return Either([kind_of(argument, seen, scope) for argument in arguments])
    if origin is typing.Literal:
        return Choice(
            {"enum": [_shown(choice) for choice in arguments]}, [(_shown(c), c) for c in arguments], {}
        )
    collection = annotation if origin is None else origin
    if isinstance(collection, type):
        if collection in _LISTS:
            make, lenient = _LISTS[collection]
            return Items(kind_of(arguments[0] if arguments else Any, seen, scope), make, lenient)
        if collection is tuple:
            return _tuple(arguments, seen, scope)
        if collection in _MAPPINGS:
            keys, values = arguments if len(arguments) == 2 else (str, Any)
            return Mapping(kind_of(values, seen, scope), kind_of(keys, seen, scope))
    return _class(annotation, seen) if origin is None else Kind({})


def _scalar(kind: Any) -> Any:
    return of_type(kind) or ({}, anything)


def _unwrapped(annotation: Any) -> Any:
    """The annotation without what says nothing about values: Annotated, NewType, aliases."""
    while True:
        if hasattr(annotation, "__metadata__"):
            annotation = annotation.__origin__
        elif hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        elif getattr(typing.get_origin(annotation), "_name", None) in _WRAPPERS:
            annotation = typing.get_args(annotation)[0]
        else:
            return annotation


def _tuple(arguments: Tuple[Any, ...], seen: Seen, scope: Any) -> Kind:
    if not arguments:
        return Items(Kind({}), tuple)
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return Items(kind_of(arguments[0], seen, scope), tuple)
    return Row([kind_of(argument, seen, scope) for argument in arguments if argument != ()])


def _shown(choice: Any) -> Any:
    """A choice of a Literal or an Enum as JSON has it."""
    value = choice.value if isinstance(choice, Enum) else choice
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(choice)


# ---------------------------------------------------------------- classes


def _class(wanted: Any, seen: Seen) -> Kind:
    if not inspect.isclass(wanted) or wanted is object:
        return Kind({})
    if wanted in seen:
        return _Again(wanted)
    seen = (*seen, wanted)
    if issubclass(wanted, Enum):
        return _enum(wanted)
    if hasattr(wanted, "model_validate"):
        return _Own(wanted, _model_schema(wanted))
    return _record(wanted, seen) or _Own(wanted, {"title": wanted.__qualname__, IN_ENGINE: "engine"})


def _record(wanted: Any, seen: Seen) -> Optional[Kind]:
    """The kind of a class with named fields."""
    scope = getattr(sys.modules.get(wanted.__module__), "__dict__", {})
    scope = {**scope, wanted.__name__: wanted}
    if hasattr(wanted, "__required_keys__"):
        kinds = {name: kind_of(hint, seen, scope) for name, hint in wanted.__annotations__.items()}
        return Fields(kinds, sorted(wanted.__required_keys__), wanted.__qualname__)
    if hasattr(wanted, "__dataclass_fields__"):
        return _dataclass(wanted, seen, scope)
    if hasattr(wanted, "_field_defaults"):
        hints = getattr(wanted, "__annotations__", {})
        kinds = {name: kind_of(hints.get(name, Any), seen, scope) for name in wanted._fields}
        required = [name for name in kinds if name not in wanted._field_defaults]
        return Fields(kinds, required, wanted.__qualname__, wanted, wanted)
    return None


def _enum(wanted: Any) -> Kind:
    members = list(wanted)
    values = [_shown(member) for member in members]
    names = {member.name: member for member in members}
    schema: Schema = {"enum": values, "title": wanted.__qualname__}
    if list(names) != values:
        schema["x-names"] = list(names)
    return Choice(schema, list(zip(values, members)), names)  # noqa: B905 - not in Python 3.9


def _dataclass(wanted: Any, seen: Seen, scope: Any) -> Kind:
    kinds: Dict[str, Kind] = {}
    required: List[str] = []
    for name, field in wanted.__dataclass_fields__.items():
        if not field.init or field._field_type.name == "_FIELD_CLASSVAR":
            continue
        kinds[name] = kind_of(field.type, seen, scope)
        missing = type(field.default).__name__ == "_MISSING_TYPE"
        if missing and type(field.default_factory).__name__ == "_MISSING_TYPE":
            required.append(name)
    return Fields(kinds, required, wanted.__qualname__, wanted, wanted)


class _Again(Kind):
    """A class within itself: described where it is first met, and read when a value comes."""

    def __init__(self, wanted: Any) -> None:
        super().__init__({"title": wanted.__qualname__, IN_ENGINE: "engine"})
        self._wanted = wanted

    def convert(self, value: Any, field: str) -> Any:
        return _class(self._wanted, ()).convert(value, field)


class _Own(Kind):
    """A class that farhand does not know."""

    def __init__(self, wanted: Any, schema: Schema) -> None:
        super().__init__(schema)
        self._wanted = wanted

    def convert(self, value: Any, field: str) -> Any:
        wanted = self._wanted
        try:
            if isinstance(value, wanted):
                return value
        except TypeError:
            return value  # a protocol that cannot be asked
        try:
            if hasattr(wanted, "model_validate"):
                return wanted.model_validate(value)
            return wanted(**value) if isinstance(value, dict) else wanted(value)
        except Exception as error:
            place, text = _what_is_wrong(error)
            raise refusal(
                f"{field}{place}", text or f"{wanted.__qualname__} refused it ({type(error).__name__})"
            ) from error


def _what_is_wrong(error: Exception) -> Tuple[str, str]:
    """Where in the value, and what, as far as a validation error tells it without the value itself."""
    try:
        first: Any = error.errors()[0]  # type: ignore[attr-defined]
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
        told = "" if first["type"] in ("value_error", "assertion_error") else str(first["msg"])
        return place, told[:1].lower() + told[1:]
    except Exception:  # noqa: BLE001 - it is no such error
        return "", ""


def _model_schema(wanted: Any) -> Schema:
    """The schema that a model writes of itself, with its definitions where they are used."""
    try:
        schema = wanted.model_json_schema()
    except Exception:  # noqa: BLE001 - a model may hold what has no schema
        schema = {"title": wanted.__qualname__}
    return {**_inlined(schema, schema.pop("$defs", {}), 0), IN_ENGINE: "engine"}


def _inlined(schema: Any, definitions: Dict[str, Any], depth: int) -> Any:
    if isinstance(schema, list):
        return [_inlined(item, definitions, depth) for item in schema]
    if not isinstance(schema, dict):
        return schema
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    if name in definitions:
        return {} if depth > 4 else _inlined(definitions[name], definitions, depth + 1)
    return {key: _inlined(item, definitions, depth) for key, item in schema.items()}


# ---------------------------------------------------------------- text


def evaluated(annotation: Any, scope: Dict[str, Any], name: str) -> Any:
    """The type that the text of an annotation means; Any for names that only type checkers import."""
    text = getattr(annotation, "__forward_arg__", annotation)
    if not isinstance(text, str):
        return annotation
    try:
        return eval(text, dict(scope))
    except TypeError as error:
        if "|" in text and sys.version_info < (3, 10):
            said = f"{name}: Python 3.9 does not know {text!r}; write Optional[…] instead"
            raise NotSupported(said) from error
        return Any
    except (NameError, AttributeError, SyntaxError):
        return Any
