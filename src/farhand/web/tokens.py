"""Tokens: minting, listing and revoking them, and links that sign a browser in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Depends, Request
from pydantic import Field

from ..engine.tokens import YEAR_S
from ..model import NAME_PATTERN, Page, Token
from .access import Sessions, require
from .answers import Link, Rotated, WasRevoked
from .asking import Asking
from .audit import note
from .routing import Routes
from .views import JsonResponse, list_view

router = Routes(tags=["tokens"])
TOKENS = [Depends(require("tokens"))]


@dataclass(frozen=True, slots=True)
class NewToken:
    """What a token is to be. A worker's name and labels are signed into its token."""

    name: Annotated[str, Field(pattern=rf"^{NAME_PATTERN}$")]
    role: Literal["admin", "operator", "viewer", "worker"] = "worker"
    labels: tuple[Annotated[str, Field(pattern=r"^[^\s,]{1,200}$")], ...] = ()
    expires_s: Annotated[float, Field(gt=0, le=100 * YEAR_S)] = YEAR_S


@dataclass(frozen=True, slots=True)
class MintedToken:
    """A new token. ``token`` is shown this once and kept nowhere."""

    token: str
    jti: str
    name: str
    role: str
    labels: tuple[str, ...]
    expires_at: float


@dataclass(frozen=True, slots=True)
class NewLink:
    """Whom a sign-in link signs in."""

    role: Literal["admin", "operator", "viewer"] = "admin"


@router.post("/workers/tokens", status_code=201, response_model=MintedToken, dependencies=TOKENS)
async def create_token(request: Request, new: NewToken, services: Asking) -> JsonResponse:
    """Mint a token."""
    note(request, subject=new.name, role=new.role, labels=new.labels)
    text, token = await services.tokens.create(new.name, new.role, new.labels, new.expires_s)
    note(request, jti=token.jti)
    minted = MintedToken(text, token.jti, token.name, token.role, token.labels, token.expires_at)
    return JsonResponse(minted, status_code=201)


@router.get("/workers/tokens", response_model=Page[Token], dependencies=TOKENS)
async def list_tokens(services: Asking) -> JsonResponse:
    """Every token that was minted; never the secrets themselves."""
    return JsonResponse(list_view(await services.tokens.list()))


@router.post("/workers/tokens/{jti}/revoke", response_model=WasRevoked, dependencies=TOKENS)
async def revoke_token(jti: str, services: Asking) -> JsonResponse:
    """End a token's life, and all that goes on under it: a worker's or console's session, an event stream."""
    changed = await services.tokens.revoke(jti)
    return JsonResponse(WasRevoked(jti, True, changed))


@router.post("/workers/tokens/rotate-key", response_model=Rotated, dependencies=TOKENS)
async def rotate_key(request: Request, services: Asking) -> JsonResponse:
    """Sign with a new key: every token and console session ends, and workers by a token are dropped.

    The admin's own secret and the server's own processors go on.
    """
    revoked = await services.tokens.rotate_key()
    note(request, revoked=revoked)
    return JsonResponse(Rotated(revoked))


@router.post(
    "/signin-links", status_code=201, response_model=Link, dependencies=[Depends(require("sign_in_link"))]
)
async def create_link(request: Request, new: NewLink | None = None) -> JsonResponse:
    """A one-time address, relative to the server's own, that signs a browser in to the console."""
    sessions: Sessions = request.app.state.sessions
    note(request, role=(new or NewLink()).role)
    return JsonResponse(Link(sessions.link((new or NewLink()).role)), status_code=201)
