"""The request that comes by the thousand, starting a run, answered without the framework's machinery.

`Quick` stands before the router and answers exactly as the route `start_run` would, which stays the one
that is described. Whatever is not plainly such a request (another content type, a body of another shape)
goes on to the route with all that was read of it, and is answered or refused there.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import FarhandError
from .access import require
from .flows import Start, start_run
from .handlers import answer

_PATH = re.compile(r"/api/v1/flows/([^/]+)/runs")
_decode = msgspec.json.Decoder(Start).decode
_may_start = require("start")


class Quick:
    """An ASGI layer around the application's routes, inside the audit log's."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = _flow_to_start(scope)
        if name is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        try:
            read = await _read(receive)
            start = _start_in(read)
            if start is None:
                await self._app(scope, _again(read, receive), send)
                return
            scope["endpoint"], scope["path_params"] = start_run, {"name": name}
            await _may_start(request)
            response: Any = await start_run(request, name, scope["app"].state.services, start)
        except (FarhandError, HTTPException) as error:
            response = await answer(request, error)
        await response(scope, receive, send)


def _flow_to_start(scope: Scope) -> str | None:
    """The flow that a request wants to start; None for any other request."""
    if scope["type"] != "http" or scope["method"] != "POST" or scope.get("root_path"):
        return None
    match = _PATH.fullmatch(scope["path"])
    if match is None or Headers(scope=scope).get("content-type") != "application/json":
        return None
    return match.group(1)


async def _read(receive: Receive) -> list[Message]:
    """The messages that bring the body."""
    read = [await receive()]
    while read[-1]["type"] == "http.request" and read[-1].get("more_body"):
        read.append(await receive())
    return read


def _start_in(read: list[Message]) -> Start | None:
    """What the body says; None when it did not arrive whole or says something else."""
    if read[-1]["type"] != "http.request":
        return None
    try:
        return _decode(b"".join(message.get("body", b"") for message in read))
    except (msgspec.DecodeError, UnicodeError):
        return None


def _again(read: list[Message], receive: Receive) -> Receive:
    """``receive`` with what was read already before what comes."""
    messages = iter(read)

    async def receiving() -> Message:
        for message in messages:
            return message
        return await receive()

    return receiving
