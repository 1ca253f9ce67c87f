"""Parameters of flows: checked and converted by the signature, described as JSON Schema.

One table says what a type accepts. The same kinds are built from annotations (scripts and engines) and
from a schema (server, command line, schedules), so that both sides take and refuse the same values.
Messages name the field and never show the value.

A class of the user's own is constructed where the flow runs: by ``model_validate`` where it has one, else
from a dict of its arguments.
"""

from __future__ import annotations

import inspect
import sys
import typing
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple, Union

from farhand.errors import InvalidParameters, NotSupported

Schema = Dict[str, Any]
Params = Dict[str, Any]
Convert = Callable[[Any], Any]

_EMPTY = inspect.Parameter.empty
_UNIONS = (Union, getattr(__import__("types"), "UnionType", Union))


class Unfit(ValueError):
    """A value does not fit; the text says what would."""


# ---------------------------------------------------------------- single values


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise Unfit("must be text")


def _integer(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            pass
    raise Unfit("must be a whole number")


def _number(value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            pass
    raise Unfit("must be a number")


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    known = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
    if isinstance(value, str) and value.lower() in known:
        return known[value.lower()]
    raise Unfit("must be true or false")


def _moment(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value[:-1] + "+00:00" if value.endswith(("Z", "z")) else value)
        except ValueError:
            pass
    raise Unfit("must be a moment such as 2024-01-31T12:00:00+00:00")


def _day(value: Any) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    if isinstance(value, str):
        try:
            return date.fromisoformat(value)
        except ValueError:
            pass
    raise Unfit("must be a day such as 2024-01-31")


def _span(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return timedelta(seconds=value)
    if isinstance(value, str):
        units = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
        number, unit = (value[:-1], value[-1]) if value[-1:] in units else (value, "s")
        try:
            return timedelta(seconds=float(number) * units[unit])
        except (ValueError, OverflowError):
            pass
    raise Unfit("must be a duration: seconds, or text such as 90s or 2h")


def _path(value: Any) -> Path:
    if isinstance(value, (str, Path)):
        return Path(value)
    raise Unfit("must be a path")


def _anything(value: Any) -> Any:
    return value


_TABLE: List[Tuple[Any, Schema, Convert]] = [
    (str, {"type": "string"}, _text),
    (bool, {"type": "boolean"}, _boolean),
    (int, {"type": "integer"}, _integer),
    (float, {"type": "number"}, _number),
    (datetime, {"type": "string", "format": "date-time"}, _moment),
    (date, {"type": "string", "format": "date"}, _day),
    (timedelta, {"type": ["number", "string"], "format": "duration"}, _span),
    (Path, {"type": "string", "format": "path"}, _path),
    (Any, {}, _anything),
    (_EMPTY, {}, _anything),
]
"""Type, its schema, and what turns a JSON value into it. A type is added here and nowhere else."""

_BY_TYPE: Dict[Any, Tuple[Schema, Convert]] = {kind: (schema, convert) for kind, schema, convert in _TABLE}


def _signature_of(schema: Schema) -> str:
    return f"{schema.get('type')} {schema.get('format', '')}"


_BY_SCHEMA: Dict[str, Convert] = {_signature_of(schema): convert for _, schema, convert in _TABLE if schema}


# ---------------------------------------------------------------- kinds


class Kind:
    """What a parameter accepts: a schema, and ``convert(value, field)``."""

    def __init__(self, schema: Schema, convert: Convert) -> None:
        self.schema = schema
        self._convert = convert

    def convert(self, value: Any, field: str) -> Any:
        """The value as the function gets it. Raises `InvalidParameters` naming the field."""
        try:
            return self._convert(value)
        except Unfit as unfit:
            raise InvalidParameters(f"{field}: {unfit}", field=field) from None


class _Optional(Kind):
    def __init__(self, inner: Kind) -> None:
        super().__init__({"anyOf": [inner.schema, {"type": "null"}]}, _anything)
        self._inner = inner

    def convert(self, value: Any, field: str) -> Any:
        return None if value is None else self._inner.convert(value, field)


class _List(Kind):
    def __init__(self, inner: Kind) -> None:
        super().__init__({"type": "array", "items": inner.schema}, _anything)
        self._inner = inner

    def convert(self, value: Any, field: str) -> Any:
        if not isinstance(value, (list, tuple)):
            raise InvalidParameters(f"{field}: must be a list", field=field)
        return [self._inner.convert(item, f"{field}[{index}]") for index, item in enumerate(value)]


class _Dict(Kind):
    def __init__(self, inner: Kind) -> None:
        super().__init__({"type": "object", "additionalProperties": inner.schema}, _anything)
        self._inner = inner

    def convert(self, value: Any, field: str) -> Any:
        if not isinstance(value, dict):
            raise InvalidParameters(f"{field}: must be an object", field=field)
        for name in value:
            if not isinstance(name, str):
                raise InvalidParameters(f"{field}: its keys must be text", field=field)
        return {name: self._inner.convert(item, f"{field}.{name}") for name, item in value.items()}


class _Own(Kind):
    """A class that farhand does not know."""

    def __init__(self, wanted: Any) -> None:
        super().__init__({}, _anything)
        self._wanted = wanted

    def convert(self, value: Any, field: str) -> Any:
        wanted = self._wanted
        if not isinstance(wanted, type) or isinstance(value, wanted):
            return value
        try:
            if hasattr(wanted, "model_validate"):
                return wanted.model_validate(value)  # type: ignore[attr-defined]
            return wanted(**value) if isinstance(value, dict) else wanted(value)
        except Exception as error:  # the user's own constructor may raise anything
            text = f"{field}: {wanted.__qualname__} refused it ({type(error).__name__})"
            raise InvalidParameters(text, field=field) from error


def kind_of(annotation: Any) -> Kind:
    """The kind of an annotation."""
    if isinstance(annotation, typing.Hashable) and annotation in _BY_TYPE:
        return Kind(*_BY_TYPE[annotation])
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in _UNIONS:
        inner = [argument for argument in arguments if argument is not type(None)]
        if len(inner) == 1:
            return _Optional(kind_of(inner[0]))
        return Kind({}, _anything)
    if annotation is list or origin is list:
        return _List(kind_of(arguments[0] if arguments else Any))
    if annotation is dict or origin is dict:
        return _Dict(kind_of(arguments[1] if arguments else Any))
    if origin is not None:
        return Kind({}, _anything)
    return _Own(annotation)


def kind_of_schema(schema: Schema) -> Kind:
    """The kind that has this schema."""
    convert = _BY_SCHEMA.get(_signature_of(schema))
    if convert is not None:
        return Kind(schema, convert)
    options = [option for option in schema.get("anyOf", ()) if option.get("type") != "null"]
    if len(options) == 1:
        return _Optional(kind_of_schema(options[0]))
    if schema.get("type") == "array":
        return _List(kind_of_schema(schema.get("items", {})))
    if schema.get("type") == "object":
        return _Dict(kind_of_schema(schema.get("additionalProperties", {})))
    return Kind({}, _anything)


# ---------------------------------------------------------------- signatures


class Parameters:
    """The parameters of one function, read from its signature on first use."""

    def __init__(self, function: Callable[..., Any], signature: inspect.Signature) -> None:
        self._signature = signature
        self._kinds: Dict[str, Kind] = {}
        for name, parameter in signature.parameters.items():
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                raise NotSupported(f"*{name}: a flow's parameters need names; take a list instead")
            self._kinds[name] = kind_of(_annotation(function, name, parameter.annotation))

    def schema(self) -> Schema:
        """The JSON Schema of a parameters object."""
        properties: Dict[str, Schema] = {}
        required: List[str] = []
        additional = False
        for name, parameter in self._signature.parameters.items():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                additional = True
                continue
            properties[name] = dict(self._kinds[name].schema)
            if parameter.default is _EMPTY:
                required.append(name)
            else:
                default = export(parameter.default)
                properties[name]["default"] = default
        return {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": additional,
        }

    def bind(self, args: Tuple[Any, ...], kwargs: Params) -> inspect.BoundArguments:
        """A call's arguments, defaults included, each converted. Raises `InvalidParameters`."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidParameters(str(error)) from None
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            parameter = self._signature.parameters[name]
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                bound.arguments[name] = {k: self._kinds[name].convert(v, k) for k, v in value.items()}
            elif not (value is None and parameter.default is None):
                bound.arguments[name] = self._kinds[name].convert(value, name)
        return bound

    def bind_params(self, params: Params) -> inspect.BoundArguments:
        """The same for a parameters object."""
        _check_names(self.schema(), params)
        positional = [
            params[name]
            for name, parameter in self._signature.parameters.items()
            if parameter.kind is inspect.Parameter.POSITIONAL_ONLY and name in params
        ]
        names = list(self._signature.parameters)[: len(positional)]
        return self.bind(tuple(positional), {k: v for k, v in params.items() if k not in names})


def check(schema: Schema, params: Params) -> None:
    """Whether a parameters object fits a schema. Raises `InvalidParameters` naming the field."""
    _check_names(schema, params)
    for name, value in params.items():
        described = schema.get("properties", {}).get(name)
        if described is None or (value is None and described.get("default", _EMPTY) is None):
            continue
        kind_of_schema(described).convert(value, name)


def _check_names(schema: Schema, params: Any) -> None:
    if not isinstance(params, dict):
        raise InvalidParameters("the parameters must be an object of names and values")
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in params:
            raise InvalidParameters(f"{name}: is missing", field=name)
    for name in params:
        if name not in properties and not schema.get("additionalProperties"):
            known = ", ".join(properties) or "none"
            raise InvalidParameters(f"{name}: there is no such parameter; there are: {known}", field=name)


def export(value: Any) -> Any:
    """A parameter as JSON shows it; what JSON has no form for is shown as its type."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [export(item) for item in value]
    if isinstance(value, dict):
        return {str(name): export(item) for name, item in value.items()}
    return f"<{type(value).__module__}.{type(value).__qualname__}>"


def _annotation(function: Callable[..., Any], name: str, annotation: Any) -> Any:
    if not isinstance(annotation, str):
        return annotation
    scope = getattr(sys.modules.get(function.__module__), "__dict__", getattr(function, "__globals__", {}))
    try:
        return eval(annotation, dict(scope))
    except TypeError as error:
        if "|" in annotation and sys.version_info < (3, 10):
            text = f"{name}: Python 3.9 does not know {annotation!r}; write Optional[…] instead"
            raise NotSupported(text) from error
        return Any
    except (NameError, AttributeError, SyntaxError):
        return Any  # a name that only type checkers import
