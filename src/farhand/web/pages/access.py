"""Who may get in, what is kept for jobs, and who changed what: for admins."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import Depends, Request
from starlette.responses import Response

from ...engine.roles import Identity
from ...engine.services import Services
from ...model import Token
from ..access import require
from ..asking import Asking
from ..routing import Routes
from .shell import PageRoute, render

router = Routes(kind=PageRoute, described=False)
PAGE = 100

TokenKeeper = Annotated[Identity, Depends(require("tokens"))]
Auditor = Annotated[Identity, Depends(require("audit"))]


@router.get("/access")
async def access_page(request: Request, services: Asking, visitor: TokenKeeper) -> Response:
    """The page: tokens, and the names of secrets and variables."""
    shown = await _tokens(services)
    secrets, variables = await services.secrets.list(), await services.variables.list()
    return render(request, "access.html", visitor, secrets=secrets, variables=variables, **shown)


@router.get("/fragments/tokens")
async def tokens(request: Request, services: Asking, visitor: TokenKeeper) -> Response:
    """The rows of the table of tokens, as they are now."""
    return render(request, "access_tokens.html", visitor, root="./", **await _tokens(services))


@router.get("/audit")
async def audit_page(
    request: Request, services: Asking, visitor: Auditor, cursor: str = "", actor: str = "", action: str = ""
) -> Response:
    """The page: the audit log, the newest entry first."""
    page = await services.audit.page(PAGE, cursor or None, actor or None, action or None)
    return render(
        request,
        "audit.html",
        visitor,
        entries=page.items,
        older=page.next,
        asked={"actor": actor, "action": action},
        first=not cursor,
    )


async def _tokens(services: Services) -> dict[str, Any]:
    now = time.time()
    return {"tokens": [(token, state_of(token, now)) for token in reversed(await services.tokens.list())]}


def state_of(token: Token, now: float) -> str:
    """valid, expired or revoked."""
    if token.revoked_at is not None:
        return "revoked"
    return "valid" if token.expires_at > now else "expired"
