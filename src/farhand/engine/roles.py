"""What each role may do: the one table, for routes, console and websockets alike."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..errors import Forbidden

ADMIN, OPERATOR, VIEWER, WORKER = "admin", "operator", "viewer", "worker"
ROLES = (ADMIN, OPERATOR, VIEWER, WORKER)

_ADMIN = frozenset({ADMIN})
_OPERATORS = _ADMIN | {OPERATOR}
_PEOPLE = _OPERATORS | {VIEWER}

MAY: dict[str, frozenset[str]] = {
    "read": _PEOPLE,
    "start": _OPERATORS,
    "cancel": _OPERATORS,
    "schedules": _OPERATORS,
    "workers": _OPERATORS,
    "provisioners": _OPERATORS,
    "services": _OPERATORS,
    "use_services": _OPERATORS,
    "variables": _OPERATORS,
    "flavors": _OPERATORS,
    "secrets_list": _OPERATORS,
    "secrets": _ADMIN,
    "deploy": _OPERATORS,
    "delete": _ADMIN,
    "backup": _ADMIN,
    "tokens": _ADMIN,
    "sign_in_link": _ADMIN,
    "audit": _ADMIN,
    "doctor": _ADMIN,
    "attach": frozenset({WORKER}),
    "runtime": _ADMIN | {WORKER},
    "program": _PEOPLE | {WORKER},
    "artifact_read": _PEOPLE | {WORKER},
    "artifact_write": _OPERATORS | {WORKER},
}
"""Which roles may do what."""

MEANINGS: dict[str, str] = {
    "read": "look at flows, runs, logs, workers, schedules and variables",
    "start": "start and retry runs",
    "cancel": "cancel runs",
    "schedules": "pause and resume schedules",
    "workers": "drain, resume and forget workers, and set their slots",
    "provisioners": "try provisioners, which may start a machine",
    "services": "start and stop services",
    "use_services": "use services through the server",
    "variables": "set and delete variables",
    "flavors": "set and delete flavors, which are named sizes",
    "secrets_list": "see which secrets there are; nobody is shown a value",
    "secrets": "set and delete secrets",
    "deploy": "bring code to the server",
    "delete": "delete runs and what belongs to them",
    "backup": "take the whole store and its files, keys included, away as one file",
    "tokens": "mint, list and revoke tokens, and change the signing key",
    "sign_in_link": "make links that sign a browser in",
    "audit": "read the audit log",
    "doctor": "read the server's settings and the state of its store",
    "attach": "attach as a worker",
    "runtime": "fetch what engines run from",
    "program": "fetch the worker's program as one file",
    "artifact_read": "read content by its digest",
    "artifact_write": "write content; a worker only under a live lease",
}
"""The same actions in words."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a request comes from. ``jti`` is the id of a minted token, empty for the admin's own secret;
    ``sign_in`` that of a sign-in to the console, empty for who shows a token."""

    role: str
    name: str
    labels: tuple[str, ...] = ()
    jti: str = ""
    expires_at: float | None = field(default=None, compare=False)
    sign_in: str = ""


def check(identity: Identity, action: str) -> None:
    """Raises `Forbidden` unless the identity's role may do ``action``."""
    if identity.role not in MAY[action]:
        allowed = " or ".join(sorted(MAY[action]))
        raise Forbidden(f"a token of role {identity.role} may not do this; it takes {allowed}")
