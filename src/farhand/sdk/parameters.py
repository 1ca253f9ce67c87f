"""Parameters of flows: checked and converted by the signature, described as JSON Schema.

Scripts and engines read the signature; server, command line and schedules have its schema, made where the
flow was imported, and check against that with the same kinds. Defaults are converted like any other value,
wherever the run comes from.
"""

from __future__ import annotations

import inspect
import json
import sys
from datetime import date, time, timedelta
from enum import Enum
from pathlib import PurePath
from typing import Any, Callable, Dict, List, Optional, Tuple

from farhand.errors import InvalidParameters, NotSupported

from .annotations import evaluated, kind_of
from .kinds import Kind, kind_of_schema
from .scalars import Schema

Params = Dict[str, Any]

_EMPTY = inspect.Parameter.empty
_DEPTH_MAX = 50
_SHOWN_CHARS_MAX = 8 * 1024

# ---------------------------------------------------------------- signatures


class Parameters:
    """The parameters of one function, read from its signature on first use."""

    def __init__(self, function: Callable[..., Any], signature: inspect.Signature) -> None:
        self._signature = signature
        self._schema: Optional[Schema] = None
        self._kinds: Dict[str, Kind] = {}
        for name, parameter in signature.parameters.items():
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                raise NotSupported(f"*{name}: a flow's parameters need names; take a list instead")
            self._kinds[name] = _kind(function, name, parameter.annotation)

    def schema(self) -> Schema:
        """The JSON Schema of a parameters object. Raises `InvalidParameters` for an unfit default."""
        if self._schema is None:
            self._schema = self._described()
        return self._schema

    def _described(self) -> Schema:
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
                properties[name]["default"] = export(self._converted(name, parameter.default))
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
            else:
                bound.arguments[name] = self._converted(name, value)
        return bound

    def _converted(self, name: str, value: Any) -> Any:
        if value is None and self._signature.parameters[name].default is None:
            return None
        return self._kinds[name].convert(value, name)

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


def export(value: Any, depth: int = 0) -> Any:
    """A parameter as JSON shows it; what JSON has no form for is shown as its type."""
    if value is None or type(value) in (bool, int, str):
        return value
    if isinstance(value, float):
        return float(value) if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, Enum):
        return export(value.value if isinstance(value.value, (bool, int, float, str)) else value.name)
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, PurePath) or type(value).__module__ in ("uuid", "decimal", "_decimal"):
        return str(value)
    if isinstance(value, (int, str)):
        return int(value) if isinstance(value, int) else str(value)
    return f"<{_name_of(type(value))}>" if depth > _DEPTH_MAX else _composite(value, depth + 1)


def shown(arguments: Dict[str, Any]) -> Dict[str, Any]:
    """Parameters as a list of runs shows them; a value that is long is only described."""
    found: Dict[str, Any] = {}
    for name, value in arguments.items():
        exported = export(value)
        size = len(json.dumps(exported))
        found[name] = (
            exported if size <= _SHOWN_CHARS_MAX else f"<{_name_of(type(value))}, {size} characters>"
        )
    return found


def _composite(value: Any, depth: int) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: export(item, depth) for name, item in value._asdict().items()}  # type: ignore[attr-defined]
    if isinstance(value, (list, tuple)):
        return [export(item, depth) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((export(item, depth) for item in value), key=repr)
    if isinstance(value, dict):
        return {str(export(name, depth)): export(item, depth) for name, item in value.items()}
    kind = type(value)
    if hasattr(kind, "__dataclass_fields__"):
        return {name: export(getattr(value, name, None), depth) for name in kind.__dataclass_fields__}
    if hasattr(kind, "model_dump"):
        try:
            return export(value.model_dump(mode="json"), depth)
        except Exception:  # noqa: BLE001 - a model may hold what JSON cannot
            return f"<{_name_of(kind)}>"
    return f"<{_name_of(kind)}>"


def _name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _kind(function: Callable[..., Any], name: str, annotation: Any) -> Kind:
    if annotation is _EMPTY:
        return Kind({})
    scope: Dict[str, Any] = dict(getattr(function, "__globals__", None) or {})
    module = sys.modules.get(function.__module__)
    scope.update(getattr(module, "__dict__", {}))
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    if code is not None and cells:
        scope.update((free, _content(cell)) for free, cell in zip(code.co_freevars, cells))  # noqa: B905 - not in Python 3.9
    return kind_of(evaluated(annotation, scope, name), (), scope)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return Any  # it is not set yet
