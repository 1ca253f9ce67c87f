"""The audit log: the layer that writes it, and the route that shows it.

`Audited` stands before every route, so that none can be forgotten: whatever may change something (any method
but GET, HEAD and OPTIONS) is answered only after its entry is on disk. Requests of nobody, which change
nothing, are left out, and so are uploads: what they bring is recorded with the run it belongs to.
"""

from __future__ import annotations

import logging
from typing import Annotated, Any

from fastapi import Depends, Query, Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..engine.audit import Told
from ..engine.roles import Identity
from ..engine.services import Services
from ..errors import FarhandError
from ..model import AuditEntry, Page
from .access import require
from .asking import Asking
from .guard import SAFE_METHODS
from .paging import Cursor, Limit
from .routing import Routes
from .views import JsonResponse, page_view

log = logging.getLogger("farhand")
router = Routes(tags=["audit"])

UNRECORDED = frozenset({"write_artifact"})
"""Routes that change something and write no entry."""


class Audited:
    """Writes an entry for each request that may change something."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in SAFE_METHODS:
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        request.state.noted = {}
        recorded = False

        async def sending(message: Message) -> None:
            nonlocal recorded
            if message["type"] == "http.response.start" and not recorded:
                recorded = True
                await _record(request, message["status"], Headers(raw=message["headers"]))
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except BaseException:  # a failure is told too, whatever it was
            if not recorded:
                await _record(request, 500, Headers())
            raise


def note(request: Request, **details: Any) -> None:
    """Add to the entry this request will write; ``subject`` and ``action`` replace the route's own."""
    request.state.noted |= details


def told(request: Request, status: int) -> Told:
    """The entry of this request, for a change that stores it in its own transaction."""
    services: Services = request.app.state.services
    state = request.state
    entry = services.audit.entry(state.identity, _address(request), state.route, state.subject, status)
    state.told = found = Told(entry)
    return found


async def record(request: Request, who: Identity, action: str, **details: Any) -> None:
    """Write an entry for a change that a GET brought about."""
    services: Services = request.app.state.services
    await services.audit.add(who, _address(request), action, details=details)


async def _record(request: Request, status: int, headers: Headers) -> None:
    state = request.state
    who: Identity | None = getattr(state, "identity", None)
    stored: Told | None = getattr(state, "told", None)
    if who is None or state.route in UNRECORDED or (stored is not None and stored.written):
        return
    noted: dict[str, Any] = dict(state.noted)
    action = noted.pop("action", state.route)
    subject = noted.pop("subject", state.subject)
    if status in (201, 202) and "location" in headers:
        noted["made"] = headers["location"].rpartition("/")[2]
    await tell(request.app.state.services, who, _address(request), action, subject, status, noted)


async def tell(
    services: Services,
    who: Identity,
    address: str,
    action: str,
    subject: str,
    status: int,
    noted: dict[str, Any],
) -> None:
    """Write an entry. That it cannot be written is logged, and no more."""
    try:
        await services.audit.add(who, address, action, subject, status, noted)
    except FarhandError as error:  # the change itself is done or refused; its answer must not be lost too
        log.error("no audit entry could be written for %s %s: %s", action, subject, error)


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


@router.get("/audit", response_model=Page[AuditEntry], dependencies=[Depends(require("audit"))])
async def list_audit(
    services: Asking,
    limit: Limit = 50,
    cursor: Cursor = None,
    actor: Annotated[str | None, Query(description="Only what this name asked for.")] = None,
    action: Annotated[str | None, Query(description="Only this action, such as cancel_run.")] = None,
) -> JsonResponse:
    """Who changed what, from where, and what came of it; the newest first."""
    return JsonResponse(page_view(await services.audit.page(limit, cursor, actor, action)))
