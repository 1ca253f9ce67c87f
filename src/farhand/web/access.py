"""Who is asking, and what they may do.

There is no unauthenticated mode. A request carries a bearer token, or the cookie of somebody who signed
in to the console by a one-time link or with a token. `engine.roles.MAY` is the one table of role and action;
a route says by `require` which action it is.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from fastapi import Request
from starlette.requests import HTTPConnection

from ..engine.roles import MAY, WORKER, Identity, check
from ..engine.services import Services
from ..errors import NotEncrypted, Unauthorized
from .hosts import is_loopback
from .settings import WebSettings

__all__ = ["MAY", "OPEN", "Sessions", "check", "identify", "remember", "require"]

OPEN = frozenset(
    {
        "/healthz",
        "/readyz",
        "/signin",
        "/signout",
        "/static",
        "/api/v1/openapi.json",
        "/api/v1/workers/join",
    }
)
"""Paths that answer without a token: what they say is not about this server's work, or bought by a code."""

_SEALED = tuple[str, str, str, float, str]


class Sessions:
    """One-time links and the cookies they turn into.

    A cookie is ``payload.signature``: JSON and an HMAC-SHA256 of it, both base64url. Links live in
    memory only, work once, and for ``link_s`` seconds. ``generation`` names the key that tokens are signed
    with: cookies of another one are worth nothing. What is sealed for somebody who signed in names that
    sign-in, so that tickets end with it.
    """

    def __init__(
        self,
        settings: WebSettings,
        now: Callable[[], float] = time.time,
        generation: Callable[[], str] = str,
    ) -> None:
        self._settings = settings
        self._now = now
        self._generation = generation
        self._links: dict[str, tuple[str, float]] = {}

    def link(self, role: str = "admin") -> str:
        """A new relative address that signs one browser in."""
        self._forget_old_links()
        code = secrets.token_urlsafe(24)
        self._links[code] = (role, self._now() + self._settings.link_s)
        return f"signin?code={code}"

    def redeem(self, code: str) -> Identity | None:
        """Whom a link's code signs in, once; None for a code that is used, old or made up."""
        self._forget_old_links()
        link = self._links.pop(code, None)
        return None if link is None else Identity(link[0], "console")

    def seal(self, visitor: Identity, service: str = "") -> str:
        """A cookie for ``visitor``; it lasts no longer than the token that bought it.

        With a ``service`` it is a ticket: good for that service, and no cookie.
        """
        expires_at = self._now() + self._settings.session_s
        expires_at = min(expires_at, visitor.expires_at or expires_at)
        sealed = [visitor.role, visitor.name, visitor.jti, expires_at, visitor.sign_in]
        payload = _pack(msgspec.json.encode(sealed))
        return f"{payload}.{self._signature(payload, service)}"

    def open(self, cookie: str, service: str = "") -> Identity | None:
        """The visitor of a cookie, None when it is forged, garbled or expired; or of a service's ticket."""
        payload, _, signature = cookie.partition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(payload, service).encode()):
            return None
        try:
            role, name, jti, expires_at, sign_in = msgspec.json.decode(_unpack(payload), type=_SEALED)
        except msgspec.DecodeError:  # one that an older farhand signed
            return None
        return Identity(role, name, (), jti, expires_at, sign_in) if expires_at > self._now() else None

    def _signature(self, payload: str, service: str) -> str:
        of = f"service {service}." if service else ""
        signed = f"{self._generation()}.{of}{payload}".encode()
        return _pack(hmac.digest(self._settings.session_key, signed, hashlib.sha256))

    def _forget_old_links(self) -> None:
        now = self._now()
        self._links = {code: link for code, link in self._links.items() if link[1] > now}


def _pack(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _unpack(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


async def identify(request: HTTPConnection) -> Identity | None:
    """Who sent the request; None when it carries neither token nor live cookie.

    A token that is wrong raises `Unauthorized` with the reason, whatever cookie comes with it.
    """
    header = request.headers.get("authorization", "")
    services: Services = request.app.state.services
    address = request.client.host if request.client else ""
    if header:
        scheme, _, text = header.partition(" ")
        if scheme.lower() != "bearer" or not text.strip():
            raise Unauthorized("the Authorization header must read: Bearer TOKEN")
        session = request.headers.get("farhand-session", "")
        return await services.tokens.verify(text.strip(), address, session)
    settings: WebSettings = request.app.state.settings
    sessions: Sessions = request.app.state.sessions
    known = map(sessions.open, cookies_named(request, settings.cookie_name))
    visitor = next((each for each in known if each is not None), None)
    return None if visitor is None else await services.tokens.confirm(visitor, address)


def cookies_named(request: HTTPConnection, name: str) -> list[str]:
    """All cookies of a name: a page of a host beside ours may have set one that is sent here, too."""
    pairs = (each.partition("=") for each in request.headers.get("cookie", "").split(";"))
    return [value.strip() for found, _, value in pairs if found.strip() == name]


def require(action: str) -> Callable[[Request], Coroutine[Any, Any, Identity]]:
    """A dependency: the identity behind the request, when its role may do ``action``."""
    return Requirement(action)


class Requirement:
    """What `require` makes of an action; ``action`` is there for whoever lists the routes."""

    def __init__(self, action: str) -> None:
        self.action = action

    async def __call__(self, request: Request) -> Identity:
        identity = await identify(request)
        if identity is None:
            raise Unauthorized
        remember(request, identity)
        check(identity, self.action)
        return identity


class Invited(Requirement):
    """An identity whose role may do the action, or a machine with an invitation, which stays good."""

    async def __call__(self, request: Request) -> Identity:
        scheme, _, code = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "invitation":
            return await super().__call__(request)
        address = request.client.host if request.client else ""
        if request.url.scheme != "https" and not is_loopback(address):
            raise NotEncrypted
        services: Services = request.app.state.services
        invited = await services.invitations.check(code.strip())
        identity = Identity(WORKER, invited.name, invited.labels)
        remember(request, identity)
        check(identity, self.action)
        return identity


def remember(request: Request, identity: Identity) -> None:
    """Leave word for the audit log of who asks, and which route answers."""
    state = request.state
    state.identity = identity
    state.route = getattr(request.scope.get("endpoint"), "__name__", "")
    state.subject = "/".join(map(str, request.path_params.values()))
