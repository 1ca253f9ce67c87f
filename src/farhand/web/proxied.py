"""Services on workers, used through the server: at ``/services/NAME/…``, and each at a host of its own.

A program shows its token, as for the API. A browser that is signed in is sent on: to the service's own host,
where a cookie says that it may be there, or, where it would not reach that, to an address with a ticket.
Either way the request goes over a connection that the service's worker dials, to the very process that was
started, and only while that is healthy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any
from urllib.parse import quote

from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from farhand_worker.racing import until_one_ends

from ..engine.member import Holding
from ..engine.roles import Identity, check
from ..engine.services import Services
from ..engine.tunnels import Pipe
from ..errors import FarhandError, Forbidden, Unauthorized
from . import upgrade
from .access import Sessions, identify
from .exchange import Exchange, Gone, NoAnswer, TooLate
from .forwarding import Headers, Visit, is_chunked, preflight, to_service, to_visitor
from .guard import with_headers
from .hosts import Hosts
from .openings import OPEN_PATH, Opening, Openings, cookie_name
from .problems import of_error, problem, too_late
from .settings import WebSettings
from .tickets import Address, address_of, bought

ACTION = "use_services"
NOT_GOOD = "this address of a service is not good any more; open it from the console"


class Proxied:
    """An ASGI layer: what is no address of a service goes on to the application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        address = _address(scope) if scope["type"] in ("http", "websocket") else None
        if address is None:
            await self._app(scope, receive, send)
            return
        try:
            response = await _serve(scope, receive, send, address)
        except FarhandError as error:
            response = of_error(error)
        if response is None:
            return
        if scope["type"] == "http":
            await response(scope, receive, with_headers(send) if address.own else send)
        else:
            await WebSocket(scope, receive, send).send_denial_response(response)


def _address(scope: Scope) -> Address | None:
    hosts: Hosts = scope["app"].state.hosts
    service = hosts.service(_host(scope))
    return Address(service, "", scope["path"], own=True) if service else address_of(scope["path"])


def _host(scope: Scope) -> str:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")


async def _serve(scope: Scope, receive: Receive, send: Send, address: Address) -> Response | None:
    """Carry a request; or what to answer in its place."""
    headers: dict[bytes, bytes] = dict(scope["headers"])
    if address.ticket and scope["type"] == "http" and scope["method"] == "OPTIONS":
        allowed = preflight(headers)
        if allowed is not None:
            return _empty(204, allowed)
    connection = HTTPConnection(scope)
    if address.own and scope["type"] == "http" and scope["path"] == OPEN_PATH:
        return _let_in(connection, address.service)
    visitor, by_token = await _visitor(connection, address)
    check(visitor, ACTION)
    if not (address.own or address.ticket or by_token):
        return _sent_on(scope, connection, address, visitor)
    if address.ticket and not scope["path"].startswith(f"{address.prefix}/"):
        return RedirectResponse(f"~{address.ticket}/", status_code=308)
    visit = _visit(scope, connection, address, by_token)
    services: Services = scope["app"].state.services
    if scope["type"] == "websocket":
        work = _converse(services, scope, receive, send, address, visit)
    else:
        work = _exchange(services, scope, receive, send, address, visit)
    with services.tokens.watch(visitor) as revoked:
        return await _unless(revoked, work)


async def _unless(revoked: asyncio.Event, work: Coroutine[Any, Any, Response | None]) -> Response | None:
    """What the work gives; it is broken off when the token that it was begun with is revoked."""
    working, _ = await until_one_ends(work, revoked.wait())
    return None if working.cancelled() else working.result()


async def _converse(
    services: Services, scope: Scope, receive: Receive, send: Send, address: Address, visit: Visit
) -> Response | None:
    """A websocket."""
    pipe, _, _ = await _dialled(services, address.service, fresh=True)
    answer_s = scope["app"].state.settings.service_answer_s
    websocket = WebSocket(scope, receive, send)
    try:
        return await upgrade.carry(pipe, websocket, _target(scope, address), visit, answer_s)
    except TimeoutError:
        return too_late(address.service, answer_s)


async def _visitor(connection: HTTPConnection, address: Address) -> tuple[Identity, bool]:
    """Who asks, and whether a token says so. Raises `Unauthorized`."""
    state = connection.app.state
    ticket = connection.cookies.get(cookie_name(state.settings), "") if address.own else address.ticket
    if ticket:
        sessions: Sessions = state.sessions
        known = sessions.open(ticket, address.service)
        client = connection.client.host if connection.client else ""
        visitor = None if known is None else await state.services.tokens.confirm(known, client)
        if visitor is None:
            raise Unauthorized(NOT_GOOD)
        return visitor, False
    if address.own and "authorization" not in connection.headers:
        raise Unauthorized(NOT_GOOD)
    found = await identify(connection)
    if found is None:
        raise Unauthorized
    return found, "authorization" in connection.headers


def _let_in(connection: HTTPConnection, service: str) -> Response:
    """Trade a code of the console for the cookie of this host, which lasts no longer than the sign-in."""
    state = connection.app.state
    openings: Openings = state.openings
    opening = openings.redeem(connection.query_params.get("code", ""), service)
    if opening is None:
        raise Unauthorized(NOT_GOOD)
    scheme, settings = _scheme(connection.scope), state.settings
    away = RedirectResponse(f"{scheme}://{connection.headers['host']}{opening.to}", status_code=303)
    away.set_cookie(
        cookie_name(settings),
        opening.ticket,
        max_age=int(settings.session_s),
        secure=scheme == "https",
        httponly=True,
        samesite="lax",  # a strict one would not be sent along after the console has led here
    )
    return away


def _sent_on(scope: Scope, connection: HTTPConnection, address: Address, visitor: Identity) -> Response:
    """To where a browser uses it; for a page only, since a page of the console asks for nothing here."""
    if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
        raise Forbidden("sign-ins do not reach services; open the service's page from the console")
    state = connection.app.state
    hosts: Hosts = state.hosts
    ticket = state.sessions.seal(visitor, address.service)
    origin = hosts.origin(address.service, _scheme(scope), connection.headers.get("host", ""))
    if origin:
        opening = Opening(address.service, ticket, _target(scope, address).decode("latin-1"))
        return RedirectResponse(f"{origin}{OPEN_PATH}?code={state.openings.sell(opening)}", status_code=303)
    to = bought(address, ticket)
    query = scope["query_string"].decode("latin-1")
    return RedirectResponse(quote(to, safe="/~.-_") + (f"?{query}" if query else ""), status_code=303)


def _visit(scope: Scope, connection: HTTPConnection, address: Address, by_token: bool) -> Visit:
    settings: WebSettings = connection.app.state.settings
    prefix = "" if address.own else settings.base_path.rstrip("/") + address.prefix
    client = connection.client.host if connection.client else ""
    return Visit(prefix, client, _scheme(scope), connection.headers.get("host", ""), by_token, address.own)


def _scheme(scope: Scope) -> str:
    return "https" if scope["scheme"] in ("https", "wss") else "http"


def _target(scope: Scope, address: Address) -> bytes:
    """What the service is asked for, as it was written."""
    path: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    parts = path.split(b"/", 1 if address.own else 4 if address.ticket else 3)
    query: bytes = scope["query_string"]
    return b"/" + parts[-1] + (b"?" + query if query else b"")


async def _dialled(services: Services, name: str, fresh: bool) -> tuple[Pipe, Holding, bool]:
    """A connection to the service, its lease, and whether it was used before."""
    service, member, holding = await services.hosting.reached(name)
    pipe = None if fresh else services.tunnels.idle(holding)
    if pipe is not None:
        return pipe, holding, True
    return await services.tunnels.open(service, member, holding), holding, False


async def _exchange(
    services: Services, scope: Scope, receive: Receive, send: Send, address: Address, visit: Visit
) -> Response | None:
    """One request. A connection that was kept may have been ended meanwhile: then it is asked anew, once."""
    fresh, answer_s = False, scope["app"].state.settings.service_answer_s
    while True:
        pipe, holding, used = await _dialled(services, address.service, fresh)
        exchange = Exchange(pipe, receive, send, lambda given: to_visitor(given, visit), answer_s)
        reusable = False
        try:
            reusable = await exchange.run(scope["method"], _target(scope, address), _asking(scope, visit))
            return None
        except Gone:
            return None
        except TooLate:
            return too_late(address.service, answer_s)
        except NoAnswer as error:
            if not used or exchange.asked:
                return problem(502, "service_broke_off", f"the service {address.service!r}: {error}")
            fresh = True
        finally:
            if reusable:
                services.tunnels.keep(holding, pipe)
            else:
                pipe.close()


def _asking(scope: Scope, visit: Visit) -> Headers:
    given: Any = scope["headers"]
    headers = to_service(given, visit)
    if is_chunked(given):
        headers.append((b"transfer-encoding", b"chunked"))
    return headers


def _empty(status: int, headers: Headers) -> Response:
    response = Response(status_code=status)
    response.raw_headers = [*headers, (b"cache-control", b"no-store")]
    return response
