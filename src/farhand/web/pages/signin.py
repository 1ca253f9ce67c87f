"""Signing in by a one-time link, and out."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from ...errors import Unauthorized
from ..access import Sessions
from ..settings import WebSettings
from .shell import NOT_SIGNED_IN, PageRoute, render

router = APIRouter(route_class=PageRoute)


@router.get("/signin")
async def signin(request: Request, code: Annotated[str, Query(max_length=200)] = "") -> Response:
    """Trade a link's code for a cookie, and go to the list of runs."""
    sessions: Sessions = request.app.state.sessions
    settings: WebSettings = request.app.state.settings
    cookie = sessions.redeem(code)
    if cookie is None:
        raise Unauthorized("that link has been used or is too old" if code else NOT_SIGNED_IN)
    response = RedirectResponse("./", status_code=303)
    response.set_cookie(
        settings.cookie_name,
        cookie,
        max_age=int(settings.session_s),
        path=settings.base_path or "/",
        secure=settings.secure,
        httponly=True,
        samesite="strict",
    )
    return response


@router.post("/signout")
async def signout(request: Request) -> Response:
    """Forget the cookie."""
    settings: WebSettings = request.app.state.settings
    response = render(request, "signin.html", said="you are signed out")
    response.delete_cookie(
        settings.cookie_name,
        path=settings.base_path or "/",
        secure=settings.secure,
        httponly=True,
        samesite="strict",
    )
    return response
