"""What is kept beside the work: the audit log, secrets by name, variables, events, pages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from .names import Json

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A change that somebody asked for. ``action`` names it (``cancel_run``), ``subject`` what it was about.

    ``outcome`` is done, refused or failed; ``jti`` is empty for the admin's secret and for consoles that
    were opened by a link.
    """

    id: int
    at: float
    role: str
    actor: str
    jti: str
    address: str
    action: str
    subject: str
    outcome: str
    status: int
    details: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret as it is listed; its value is sealed and never part of a record."""

    name: str
    created_at: float
    updated_at: float
    updated_by: str
    last_read_at: float | None = None


@dataclass(frozen=True, slots=True)
class Variable:
    """A plain value that jobs may read. ``value`` is JSON text."""

    name: str
    value: str
    updated_at: float
    updated_by: str


@dataclass(frozen=True, slots=True)
class Event:
    """An entry of the event log: ``kind`` is dotted, as in ``worker.attached`` or ``run.completed``."""

    id: int
    at: float
    kind: str
    message: str
    run: str | None = None
    worker: str | None = None
    details: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A page of records and the cursor of the next one (None at the end)."""

    items: list[T]
    next: str | None = None
