"""What a request must look like before any route sees it, and the headers every answer carries.

- **Host** must be a loopback name, the address the connection arrived on, or a configured name. A page
  of another site that points its own name at this machine (DNS rebinding) is stopped here, which is why
  loopback is no exception.
- **Origin**, when a browser sends one, must be this server's own for anything that changes state and for
  websockets. Programs send none.
- **Size**: bodies other than artifacts, and those for services, end at ``body_bytes_max``.
- **Base path**: a prefix that a proxy left on the path is taken off; every link is relative.

At the host of a service the first two hold as well, the second for whatever a page loads, too, and nothing is
added to what the service answers. Pages of other origins may lead there, and no more.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .hosts import Hosts, host_name, is_loopback
from .problems import problem
from .settings import WebSettings
from .tickets import Address, address_of

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

CONTENT_SECURITY_POLICY = (
    "default-src 'self'; img-src 'self'; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)

HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""Set on every answer that does not set them itself."""

RAW_HEADERS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
"""The same as they go out."""


class Guard:
    """The outermost ASGI layer."""

    def __init__(self, app: ASGIApp, settings: WebSettings) -> None:
        self.app = app
        self._settings = settings
        self._hosts = Hosts(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        at_service = self._hosts.service(Headers(scope=scope).get("host", "")) != ""
        inside = scope if at_service else self.inside(scope)
        refusal = self._refusal(scope, None if at_service else address_of(inside["path"]))
        if refusal is not None:
            await _refuse(scope, receive, send, *refusal)
            return
        if at_service:
            await self.app(scope, receive, send)
            return
        if scope["type"] == "http" and scope["path"] == self._settings.base_path != "":
            # Relative links need the slash at the end.
            away = RedirectResponse(scope["path"].rpartition("/")[2] + "/", status_code=308)
            await away(scope, receive, send)
            return
        scope = inside
        if scope["type"] == "http":
            receive, send = self._limited(scope, receive), with_headers(send)
        await self.app(scope, receive, send)

    @property
    def body_bytes_max(self) -> int:
        """What the body of most requests may have."""
        return self._settings.body_bytes_max

    def admits(self, scope: Scope) -> bool:
        """Whether a request is for this server itself, and there is nothing against it."""
        at_service = self._hosts.service(Headers(scope=scope).get("host", ""))
        return not at_service and self._refusal(scope, None) is None

    def _refusal(self, scope: Scope, service: Address | None) -> tuple[str, str] | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        name = host_name(host)
        arrived_on = (scope.get("server") or ("", 0))[0]
        known = name in self._hosts.own or name in self._settings.relay_hosts or self._hosts.service(host)
        if not (is_loopback(name) or known or (name and name == arrived_on)):
            return "wrong_host", "this server does not go by that name; allow it with --public-host"
        changes = scope["type"] == "websocket" or scope["method"] not in SAFE_METHODS
        if service is None and self._hosts.service(host):
            changes |= headers.get("sec-fetch-mode", "navigate") != "navigate"
        if service is not None and service.ticket:
            return None  # a ticket is no cookie: whoever shows it was given it
        if changes and not _same_origin(headers, host):
            return "cross_origin", "requests from pages of other origins may not change anything here"
        return None

    def inside(self, scope: Scope) -> Scope:
        """The scope without a base path that a proxy left on it."""
        base = self._settings.base_path.rstrip("/")
        path: str = scope["path"]
        if not base or not path.startswith(base + "/"):
            return scope
        rest, raw = path[len(base) :], bytes(scope.get("raw_path") or b"")
        prefix = base.encode()
        return {
            **scope,
            "path": rest,
            "raw_path": raw[len(prefix) :] if raw.startswith(prefix) else rest.encode(),
        }

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        if "/artifacts/" in scope["path"] or address_of(scope["path"]) is not None:
            return receive
        limit, got = self._settings.body_bytes_max, 0

        async def limited() -> Message:
            nonlocal got
            message = await receive()
            got += len(message.get("body", b""))
            if got > limit:
                raise HTTPException(413, f"a request body may have at most {limit} bytes")
            return message

        return limited


def _same_origin(headers: Headers, host: str) -> bool:
    """Whether no browser sent this, or one that was showing a page of this very server."""
    site = headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    if origin is None:
        return site is not None or "cookie" not in headers
    return urlsplit(origin).netloc.lower() == host.lower()


def with_headers(send: Send) -> Send:
    """Have every answer carry `HEADERS`."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = message.get("headers", ())
            names = {name for name, _ in given}
            message["headers"] = [*given, *(header for header in RAW_HEADERS if header[0] not in names)]
        await send(message)

    return sending


async def _refuse(scope: Scope, receive: Receive, send: Send, code: str, detail: str) -> None:
    response: Any = problem(403, code, detail)
    if scope["type"] == "http":
        await response(scope, receive, with_headers(send))
    elif "websocket.http.response" in scope.get("extensions", {}):
        # The handshake is answered by the problem itself, so that a worker's log can say what is wrong.
        await response(scope, receive, send)
    else:
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": code})
