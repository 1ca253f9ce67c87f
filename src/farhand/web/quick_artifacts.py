"""The requests that carry a worker's values, answered without the framework's machinery.

`QuickArtifacts` stands before the application and answers by the routes of `artifacts`, which stay the ones
that are described. Whatever is not plainly such a request (a header that cannot be read) goes on to them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ..engine.blob_access import Claim
from ..engine.roles import Identity
from ..engine.services import Services
from ..errors import FarhandError
from .access import Requirement
from .artifacts import find_artifact, read_artifact, write_artifact
from .guard import Guard, with_headers
from .handlers import answer
from .problems import internal

_PATH = re.compile(r"/api/v1/artifacts/([^/]+)")
_LEASE = re.compile(r"[0-9]{1,18}")
_may_read, _may_write = Requirement("artifact_read"), Requirement("artifact_write")

_Answer = Callable[[Request, str, Services, Identity, Claim], Coroutine[Any, Any, Response]]


async def _read(request: Request, digest: str, services: Services, who: Identity, claim: Claim) -> Response:
    return await read_artifact(digest, services, who, claim)


async def _find(request: Request, digest: str, services: Services, who: Identity, claim: Claim) -> Response:
    return await find_artifact(digest, services, who, claim)


async def _write(request: Request, digest: str, services: Services, who: Identity, claim: Claim) -> Response:
    headers = request.headers
    told = headers.get("content-range"), headers.get("farhand-laid")
    return await write_artifact(digest, request, services, who, claim, *told)


_ANSWERS: dict[str, tuple[Any, Requirement, _Answer]] = {
    "GET": (read_artifact, _may_read, _read),
    "HEAD": (find_artifact, _may_read, _find),
    "PUT": (write_artifact, _may_write, _write),
}
"""The route a method is answered as, who may ask, and what answers."""


class QuickArtifacts:
    """An ASGI layer around the whole application ``app``, which goes on with ``application``."""

    def __init__(self, application: ASGIApp, guard: Guard, app: FastAPI) -> None:
        self._application = application
        self._guard = guard
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        digest = self._digest_in(scope)
        claim = None if digest is None else _claim_of(Headers(scope=scope))
        if digest is None or claim is None or not self._guard.admits(scope):
            await self._application(scope, receive, send)
            return
        route, may, answers = _ANSWERS[scope["method"]]
        named = {"app": self._app, "endpoint": route, "path_params": {"digest": digest}}
        request = Request({**scope, **named}, receive)
        sending = with_headers(send)
        try:
            identity = await may(request)
            response = await answers(request, digest, self._app.state.services, identity, claim)
        except (FarhandError, HTTPException) as error:
            response = await answer(request, error)
        except Exception:  # whatever it was: its log has it, as of any other request
            await internal()(request.scope, receive, sending)
            raise
        await response(request.scope, receive, sending)

    def _digest_in(self, scope: Scope) -> str | None:
        """What the path of a request names; None for any that is not plainly one of these."""
        if scope["type"] != "http" or scope["method"] not in _ANSWERS or scope.get("root_path"):
            return None
        found = _PATH.fullmatch(self._guard.inside(scope)["path"])
        return None if found is None else found.group(1)


def _claim_of(headers: Headers) -> Claim | None:
    """The job and lease that a request names; None when they do not read as such."""
    lease = headers.get("farhand-lease", "")
    if _LEASE.fullmatch(lease) is None:
        return None
    return Claim(headers.get("farhand-job"), int(lease))
