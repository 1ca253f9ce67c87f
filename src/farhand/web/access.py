"""Who is asking, and what they may do.

There is no unauthenticated mode. A request carries a bearer token, or the cookie of somebody who signed
in to the console by a one-time link. `MAY` is the one table of role and action.
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

from ..engine.services import Services
from ..engine.tokens import Identity
from ..errors import Forbidden, Unauthorized
from .settings import WebSettings

MAY: dict[str, frozenset[str]] = {
    "read": frozenset({"admin", "operator", "viewer"}),
    "start": frozenset({"admin", "operator"}),
    "cancel": frozenset({"admin", "operator"}),
    "tokens": frozenset({"admin"}),
    "sign_in_link": frozenset({"admin"}),
    "attach": frozenset({"worker"}),
    "runtime": frozenset({"admin", "worker"}),
    "artifact_read": frozenset({"admin", "operator", "viewer", "worker"}),
    "artifact_write": frozenset({"admin", "worker"}),
}
"""Which roles may do what."""


class Sessions:
    """One-time links and the cookies they turn into.

    A cookie is ``payload.signature``: JSON and an HMAC-SHA256 of it, both base64url. Links live in
    memory only, work once, and for ``link_s`` seconds.
    """

    def __init__(self, settings: WebSettings, now: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._now = now
        self._links: dict[str, tuple[str, float]] = {}

    def link(self, role: str = "admin") -> str:
        """A new relative address that signs one browser in."""
        self._forget_old_links()
        code = secrets.token_urlsafe(24)
        self._links[code] = (role, self._now() + self._settings.link_s)
        return f"signin?code={code}"

    def redeem(self, code: str) -> str | None:
        """The cookie a link's code buys, once; None for a code that is used, old or made up."""
        self._forget_old_links()
        link = self._links.pop(code, None)
        return None if link is None else self.seal(Identity(link[0], "console"))

    def seal(self, visitor: Identity) -> str:
        """A cookie for ``visitor``."""
        expires_at = self._now() + self._settings.session_s
        payload = _pack(msgspec.json.encode([visitor.role, visitor.name, expires_at]))
        return f"{payload}.{self._signature(payload)}"

    def open(self, cookie: str) -> Identity | None:
        """The visitor of a cookie, None when it is forged, garbled or expired."""
        payload, _, signature = cookie.partition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(payload).encode()):
            return None
        role, name, expires_at = msgspec.json.decode(_unpack(payload), type=tuple[str, str, float])
        return Identity(role, name) if expires_at > self._now() else None

    def _signature(self, payload: str) -> str:
        return _pack(hmac.digest(self._settings.session_key, payload.encode(), hashlib.sha256))

    def _forget_old_links(self) -> None:
        now = self._now()
        self._links = {code: link for code, link in self._links.items() if link[1] > now}


def _pack(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _unpack(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


async def identify(request: Request) -> Identity | None:
    """Who sent the request; None when it carries neither token nor live cookie.

    A token that is wrong raises `Unauthorized` with the reason, whatever cookie comes with it.
    """
    header = request.headers.get("authorization", "")
    if header:
        scheme, _, text = header.partition(" ")
        if scheme.lower() != "bearer" or not text.strip():
            raise Unauthorized("the Authorization header must read: Bearer TOKEN")
        services: Services = request.app.state.services
        return await services.tokens.verify(text.strip())
    settings: WebSettings = request.app.state.settings
    sessions: Sessions = request.app.state.sessions
    return sessions.open(request.cookies.get(settings.cookie_name, ""))


def check(identity: Identity, action: str) -> None:
    """Raises `Forbidden` unless the identity's role may do ``action``."""
    if identity.role not in MAY[action]:
        allowed = " or ".join(sorted(MAY[action]))
        raise Forbidden(f"a token of role {identity.role} may not do this; it takes {allowed}")


def require(action: str) -> Callable[[Request], Coroutine[Any, Any, Identity]]:
    """A dependency: the identity behind the request, when its role may do ``action``."""

    async def dependency(request: Request) -> Identity:
        identity = await identify(request)
        if identity is None:
            raise Unauthorized
        check(identity, action)
        return identity

    return dependency
