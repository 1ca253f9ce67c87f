"""The only places where a service changes, and the event rows that say so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..errors import NotFound
from ..lifecycle import SERVICE as TABLE
from ..lifecycle import advance
from ..model import Service
from .changes import Effects
from .guard import Connection
from .moves import add_event
from .rows import SERVICES


def load_service(connection: Connection, name: str) -> Service | None:
    """The service, or None."""
    row = connection.execute(f"SELECT {SERVICES.columns} FROM services WHERE name = ?", (name,)).fetchone()
    return None if row is None else SERVICES.load(row)


def known_service(connection: Connection, name: str) -> Service:
    """The service. Raises `NotFound`."""
    service = load_service(connection, name)
    if service is None:
        raise NotFound(f"there is no service {name!r}; `farhand services list` shows them")
    return service


def move_service(
    connection: Connection,
    effects: Effects,
    service: Service,
    to: str,
    reason: str,
    message: str,
    now: float,
    **columns: Any,
) -> Service:
    """The service in state ``to``, which may be the one it is in for another reason."""
    if to != service.state:
        advance(TABLE, service.state, to)
    return note_service(connection, effects, service, to, reason, message, now, **columns)


def note_service(
    connection: Connection,
    effects: Effects,
    service: Service,
    state: str,
    reason: str,
    message: str,
    now: float,
    **columns: Any,
) -> Service:
    """The service as it is said to be now; an event, when that is another state or reason."""
    news = (state, reason) != (service.state, service.reason)
    since = now if state != service.state else service.since
    after = change_service(
        connection,
        service,
        state=state,
        reason=reason,
        message=message,
        since=since,
        updated_at=now,
        **columns,
    )
    effects.services.add(service.name)
    if news:
        details = {"service": service.name, "reason": reason}
        text = f"{service.name} is {state}: {message}"
        add_event(connection, now, f"service.{state}", text, None, after.worker or service.worker, details)
    return after


def change_service(connection: Connection, service: Service, **columns: Any) -> Service:
    """The service with other values in these columns."""
    names = ", ".join(f"{name} = ?" for name in columns)
    values = [SERVICES.value(name, value) for name, value in columns.items()]
    connection.execute(f"UPDATE services SET {names} WHERE name = ?", (*values, service.name))
    return replace(service, **columns)
