"""Single values as parameters have them: one table of type, JSON Schema and conversion.

The table is the same for annotations (scripts, engines) and for schemas (server, command line, schedules).
Messages say what would fit and never show the value.
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

Schema = Dict[str, Any]
Convert = Callable[[Any], Any]


class Unfit(ValueError):
    """A value does not fit; the text says what would."""


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
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            return float(value)
        except (ValueError, OverflowError):
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


def _clock(value: Any) -> time:
    if isinstance(value, time):
        return value
    if isinstance(value, str):
        try:
            return time.fromisoformat(value)
        except ValueError:
            pass
    raise Unfit("must be a time of day such as 12:30")


def _span(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    units = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
    try:
        if isinstance(value, str):
            number, unit = (value[:-1], value[-1]) if value[-1:] in units else (value, "s")
            return timedelta(seconds=float(number) * units[unit])
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return timedelta(seconds=value)
    except (ValueError, OverflowError):
        pass
    raise Unfit("must be a duration: seconds, or text such as 90s or 2h")


def _path(value: Any) -> Path:
    if isinstance(value, (str, Path)):
        return Path(value)
    raise Unfit("must be a path")


def _local_target(value: Any) -> Any:
    from .targets import LocalTarget  # noqa: PLC0415 - most scripts have no use for it

    if isinstance(value, LocalTarget):
        return value
    if isinstance(value, (str, Path)) and str(value) and "\0" not in str(value):
        return LocalTarget(value)
    raise Unfit("must be a path")


def _uuid(value: Any) -> Any:
    from uuid import UUID  # noqa: PLC0415 - most scripts have no use for it

    if isinstance(value, UUID):
        return value
    if isinstance(value, str):
        try:
            return UUID(value)
        except ValueError:
            pass
    raise Unfit("must be a UUID such as 123e4567-e89b-12d3-a456-426614174000")


def _decimal(value: Any) -> Any:
    from decimal import Decimal, InvalidOperation  # noqa: PLC0415 - most scripts have no use for it

    if isinstance(value, Decimal):
        return value
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            return Decimal(str(value))
        except (InvalidOperation, ValueError):
            pass
    raise Unfit("must be a decimal number")


def _nothing(value: Any) -> None:
    if value is not None:
        raise Unfit("must be null")


def anything(value: Any) -> Any:
    """Whatever it is."""
    return value


_TABLE: List[Tuple[str, Schema, Convert]] = [
    ("builtins.str", {"type": "string"}, _text),
    ("builtins.bool", {"type": "boolean"}, _boolean),
    ("builtins.int", {"type": "integer"}, _integer),
    ("builtins.float", {"type": "number"}, _number),
    ("builtins.NoneType", {"type": "null"}, _nothing),
    ("datetime.datetime", {"type": "string", "format": "date-time"}, _moment),
    ("datetime.date", {"type": "string", "format": "date"}, _day),
    ("datetime.time", {"type": "string", "format": "time"}, _clock),
    ("datetime.timedelta", {"type": ["number", "string"], "format": "duration"}, _span),
    ("pathlib.Path", {"type": "string", "format": "path"}, _path),
    ("uuid.UUID", {"type": "string", "format": "uuid"}, _uuid),
    ("decimal.Decimal", {"type": ["number", "string"], "format": "decimal"}, _decimal),
]
"""Type, its schema, and what turns a JSON value into it. A type is added here and nowhere else."""

_BY_TYPE: Dict[str, Tuple[Schema, Convert]] = {name: (schema, convert) for name, schema, convert in _TABLE}
_BY_TYPE["pathlib._local.Path"] = _BY_TYPE["pathlib.Path"]
_BY_TYPE["farhand.sdk.targets.LocalTarget"] = (_BY_TYPE["pathlib.Path"][0], _local_target)


def of_type(kind: Any) -> Optional[Tuple[Schema, Convert]]:
    """Schema and conversion of a type, if it is in the table. By name: nothing is imported to find out."""
    return _BY_TYPE.get(f"{kind.__module__}.{kind.__qualname__}") if isinstance(kind, type) else None


def _signature_of(schema: Schema) -> str:
    return f"{schema.get('type')} {schema.get('format', '')}"


_BY_SCHEMA: Dict[str, Convert] = {_signature_of(schema): convert for _, schema, convert in _TABLE}


def of_schema(schema: Schema) -> Optional[Convert]:
    """The conversion of a schema, if it is in the table."""
    return _BY_SCHEMA.get(_signature_of(schema))
