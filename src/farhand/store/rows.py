"""Records to rows and back: columns in the order of the dataclass's fields, JSON as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any, Generic, TypeVar

import msgspec

from ..model import (
    Artifact,
    Ask,
    Attempt,
    AuditEntry,
    Event,
    Fire,
    Flavor,
    Flow,
    Invitation,
    Job,
    JobSettings,
    Json,
    LeftOut,
    Machine,
    Project,
    Run,
    Schedule,
    Secret,
    Service,
    ServiceSpec,
    TaskRun,
    Token,
    Trouble,
    Variable,
    Version,
    Worker,
)

R = TypeVar("R")
Row = Sequence[Any]

_ALIKE_MAX = 256
_CLAUSES_MAX = 1024
_encode = msgspec.json.Encoder().encode


def to_json(value: Any) -> str:
    """Any of our values as compact JSON text."""
    return _encode(value).decode()


def optional_json(value: Any) -> str | None:
    """JSON text, or NULL for None."""
    return None if value is None else _encode(value).decode()


def storable(value: Any) -> Any:
    """The same value with every lone surrogate, which no store takes, written as an escape."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {storable(key): storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return type(value)(**{f.name: storable(getattr(value, f.name)) for f in fields(value)})
    return value


from_json: Callable[[str], Any] = msgspec.json.Decoder().decode


class Mapper(Generic[R]):
    """One record type and its table. ``json`` names the columns that hold JSON, with their types."""

    def __init__(
        self,
        record: type[R],
        table: str,
        json: Mapping[str, Any] | None = None,
        flags: Sequence[str] = (),
        renamed: Mapping[str, str] | None = None,
    ) -> None:
        json, renamed = json or {}, renamed or {}
        names = [f.name for f in fields(record)]  # type: ignore[arg-type]  # R is always a dataclass
        columns = [renamed.get(name, name) for name in names]
        self.columns = ", ".join(columns)
        self.insert = f"INSERT INTO {table} ({self.columns}) VALUES ({', '.join('?' * len(columns))})"
        self._record = record
        self._names = names
        self._renamed = renamed
        self._place = {name: index for index, name in enumerate(names)}
        self._json = frozenset(json)
        self._values = attrgetter(*names)
        self._encoded = [names.index(name) for name in json]
        self._readers: dict[str, Callable[[Any], Any]] = {
            **{name: _decoder(type_) for name, type_ in json.items()},
            **dict.fromkeys(flags, bool),
        }
        self._decoders = [(names.index(name), decode) for name, decode in self._readers.items()]

    def of(self, table: str) -> str:
        """The columns, where the table goes by another name beside others."""
        return ", ".join(f"{table}.{name}" for name in self.columns.split(", "))

    def load(self, row: Row) -> R:
        """The record in a row of `columns`."""
        values = list(row)
        for index, decode in self._decoders:
            if values[index] is not None:
                values[index] = decode(values[index])
        return self._record(*values)

    def dump(self, record: R) -> tuple[Any, ...]:
        """The values of `columns` for a record."""
        values: list[Any] = list(self._values(record))
        for index in self._encoded:
            if values[index] is not None:
                values[index] = _encode(values[index]).decode()
        return tuple(values)

    def changed(self, record: R, changes: Mapping[str, Any]) -> R:
        """The record with other values in some fields, in half the time that `dataclasses.replace` takes."""
        values: list[Any] = list(self._values(record))
        for name, value in changes.items():
            values[self._place[name]] = value
        return self._record(*values)

    def changes(self, before: R, after: R) -> dict[str, Any]:
        """The fields in which two records differ, as they are in the second."""
        if before is after:
            return {}
        pairs = zip(self._names, self._values(before), self._values(after), strict=True)
        return {name: now for name, then, now in pairs if now is not then and now != then}

    def assignments(self, changes: Mapping[str, Any]) -> tuple[str, list[Any]]:
        """What an UPDATE sets, and the values for it."""
        values = [optional_json(value) if name in self._json else value for name, value in changes.items()]
        return _set_clause(tuple(self._renamed.get(name, name) for name in changes)), values

    def read(self, name: str, text: Any) -> Any:
        """One field out of its column."""
        return self._readers[name](text)

    def value(self, name: str, value: Any) -> Any:
        """One field as its column keeps it."""
        return optional_json(value) if name in self._json else value


@lru_cache(_CLAUSES_MAX)
def _set_clause(names: tuple[str, ...]) -> str:
    return ", ".join([f"{name} = ?" for name in names])


def _decoder(type_: Any) -> Callable[[str], Any]:
    """Decodes a column. What every job of a flow asks for is read once: those records never change."""
    decode = msgspec.json.Decoder(type_).decode
    return lru_cache(_ALIKE_MAX)(decode) if type_ in (Ask, JobSettings) else decode


FLOWS = Mapper(
    Flow,
    "flows",
    {"schema": Json, "ask": Ask, "settings": JobSettings, "tags": tuple[str, ...]},
    flags=["present"],
)
RUNS = Mapper(Run, "runs", {"result": Json, "error": Json, "progress": Json, "called": Json})
JOBS = Mapper(
    Job,
    "jobs",
    {"args": Json, "ask": Ask, "settings": JobSettings, "devices": tuple[str, ...], "nested": Json},
    flags=["cancelling"],
)
ATTEMPTS = Mapper(Attempt, "attempts", flags=["overlap_possible"])
TASK_RUNS = Mapper(
    TaskRun,
    "task_runs",
    {"value": Json, "error": Json, "progress": Json, "needs": tuple[str, ...], "tags": tuple[str, ...]},
    flags=["kept", "seeded"],
    renamed={"index": "place"},
)
ARTIFACTS = Mapper(Artifact, "artifacts")
EVENTS = Mapper(Event, "events", {"details": Json})
WORKERS = Mapper(Worker, "workers", {"labels": tuple[str, ...], "reported": Json})
TOKENS = Mapper(Token, "tokens", {"labels": tuple[str, ...]})
INVITATIONS = Mapper(Invitation, "invitations", {"labels": tuple[str, ...]})
MACHINES = Mapper(Machine, "machines", {"labels": tuple[str, ...]})
AUDIT = Mapper(AuditEntry, "audit", {"details": Json})
SECRETS = Mapper(Secret, "secrets")
VARIABLES = Mapper(Variable, "variables")
VERSIONS = Mapper(Version, "versions", {"document": Json})
FLAVORS = Mapper(Flavor, "flavors")
PROJECTS = Mapper(Project, "projects", {"errors": tuple[Trouble, ...], "left_out": tuple[LeftOut, ...]})
SCHEDULES = Mapper(Schedule, "schedules", {"spec": Json}, flags=["paused", "present"])
FIRES = Mapper(Fire, "fires", flags=["late"])
SERVICES = Mapper(
    Service,
    "services",
    {"flows": tuple[str, ...], "spec": ServiceSpec, "ask": Ask, "secrets": tuple[str, ...]},
    flags=["present", "wanted"],
)
