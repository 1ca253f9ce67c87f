"""Signing in by a one-time link or with a token, and out."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import Query, Request
from starlette.responses import RedirectResponse, Response

from ...engine.roles import Identity
from ...errors import Unauthorized
from ..access import Sessions, check, cookies_named, remember
from ..asking import Asking
from ..audit import note, record
from ..routing import Routes
from ..settings import WebSettings
from .shell import NOT_SIGNED_IN, PageRoute, render

router = Routes(kind=PageRoute, described=False)


@router.get("/signin")
async def signin(request: Request, code: Annotated[str, Query(max_length=200)] = "") -> Response:
    """Trade a link's code for a cookie, and go to the list of runs."""
    sessions: Sessions = request.app.state.sessions
    visitor = sessions.redeem(code)
    if visitor is None:
        raise Unauthorized("that link has been used or is too old" if code else NOT_SIGNED_IN)
    await record(request, visitor, "sign_in", by="link")
    return _welcome(request, visitor)


@router.post("/signin")
async def signin_by_token(request: Request, services: Asking) -> Response:
    """Trade a token for a cookie of its role, which lasts no longer than the token does."""
    form = parse_qs((await request.body()).decode("utf-8", "replace"))
    text = "".join(form.get("token", [])).strip()
    if not text:
        raise Unauthorized("paste a token to sign in with it")
    visitor = await services.tokens.verify(text, request.client.host if request.client else "")
    remember(request, visitor)
    note(request, action="sign_in", by="token")
    check(visitor, "read")
    return _welcome(request, visitor)


def _welcome(request: Request, visitor: Identity) -> Response:
    sessions: Sessions = request.app.state.sessions
    settings: WebSettings = request.app.state.settings
    response = RedirectResponse("./", status_code=303)
    response.set_cookie(
        settings.cookie_name,
        sessions.seal(replace(visitor, sign_in=secrets.token_urlsafe(12))),
        max_age=int(settings.session_s),
        path=settings.base_path or "/",
        secure=settings.secure or request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return response


@router.post("/signout")
async def signout(request: Request, services: Asking) -> Response:
    """Forget the cookie, and end what it has bought: cookies at the hosts of services, and tickets."""
    sessions: Sessions = request.app.state.sessions
    settings: WebSettings = request.app.state.settings
    for cookie in cookies_named(request, settings.cookie_name):
        visitor = sessions.open(cookie)
        if visitor is not None:
            await services.tokens.sign_out(visitor)
            remember(request, visitor)
            note(request, action="sign_out")
    response = render(request, "signin.html", said="you are signed out")
    response.delete_cookie(
        settings.cookie_name,
        path=settings.base_path or "/",
        secure=settings.secure,
        httponly=True,
        samesite="strict",
    )
    return response
