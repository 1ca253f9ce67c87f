"""Invitations: made by an admin, and exchanged by the machine that was invited."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from pydantic import Field

from ..engine.invitations import VALID_S, VALID_S_MAX
from ..engine.roles import WORKER, Identity
from ..engine.tokens import YEAR_S
from ..errors import NotEncrypted, NotInvited
from ..model import NAME_PATTERN
from .access import remember, require
from .asking import Asking
from .audit import note
from .hosts import is_loopback
from .routing import Routes
from .settings import WebSettings
from .tokens import MintedToken
from .views import JsonResponse

log = logging.getLogger("farhand")
router = Routes(tags=["tokens"])


@dataclass(frozen=True, slots=True)
class NewInvitation:
    """Whom to invite. ``expires_s`` is how long the token shall be valid, ``valid_s`` the invitation."""

    name: Annotated[str, Field(pattern=rf"^{NAME_PATTERN}$")]
    labels: tuple[Annotated[str, Field(pattern=r"^[^\s,]{1,200}$")], ...] = ()
    expires_s: Annotated[float, Field(gt=0, le=100 * YEAR_S)] = YEAR_S
    valid_s: Annotated[float, Field(gt=0, le=VALID_S_MAX)] = VALID_S


@dataclass(frozen=True, slots=True)
class MadeInvitation:
    """An invitation. ``code`` is shown this once and kept nowhere; ``pin`` is empty behind a proxy."""

    id: str
    code: str
    name: str
    labels: tuple[str, ...]
    expires_at: float
    url: str
    pin: str


@dataclass(frozen=True, slots=True)
class Code:
    """The code of an invitation."""

    code: Annotated[str, Field(min_length=1, max_length=200)]


@router.post(
    "/workers/invitations",
    status_code=201,
    response_model=MadeInvitation,
    dependencies=[Depends(require("tokens"))],
)
async def invite_worker(request: Request, new: NewInvitation, services: Asking) -> JsonResponse:
    """Invite a machine to be a worker: a code that buys it a token, once."""
    note(request, subject=new.name, labels=new.labels)
    code, made = await services.invitations.create(new.name, new.labels, new.expires_s, new.valid_s)
    settings: WebSettings = request.app.state.settings
    shown = MadeInvitation(made.id, code, made.name, made.labels, made.expires_at, settings.url, settings.pin)
    return JsonResponse(shown, status_code=201)


@router.post("/workers/join", response_model=MintedToken)
async def join(request: Request, given: Code, services: Asking) -> JsonResponse:
    """Exchange the code of an invitation for a worker's token. It takes no token, and works once."""
    address = request.client.host if request.client else ""
    if request.url.scheme != "https" and not is_loopback(address):
        raise NotEncrypted
    try:
        text, token = await services.invitations.redeem(given.code, address)
    except NotInvited as error:
        log.warning("a machine at %s is not let in: %s", address, error)
        raise
    remember(request, Identity(WORKER, token.name, token.labels, token.jti))
    note(request, subject=token.name)
    return JsonResponse(MintedToken(text, token.jti, token.name, token.role, token.labels, token.expires_at))
