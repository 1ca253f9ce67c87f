"""The requests that carry a worker's values, answered without the framework's machinery.

`QuickArtifacts` stands before the router and answers by the routes of `artifacts`, which stay the ones that
are described. Whatever is not plainly such a request (a header that cannot be read) goes on to the router.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from typing import Any

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
from .handlers import answer

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
    """An ASGI layer around the application's routes, inside the audit log's."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = _PATH.fullmatch(scope["path"]) if scope["type"] == "http" else None
        if found is None or scope["method"] not in _ANSWERS or scope.get("root_path"):
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        claim = _claim_of(request)
        if claim is None:
            await self._app(scope, receive, send)
            return
        route, may, answers = _ANSWERS[scope["method"]]
        digest = found.group(1)
        scope["endpoint"], scope["path_params"] = route, {"digest": digest}
        try:
            identity = await may(request)
            response = await answers(request, digest, scope["app"].state.services, identity, claim)
        except (FarhandError, HTTPException) as error:
            response = await answer(request, error)
        await response(scope, receive, send)


def _claim_of(request: Request) -> Claim | None:
    """The job and lease that a request names; None when they do not read as such."""
    lease = request.headers.get("farhand-lease", "")
    if _LEASE.fullmatch(lease) is None:
        return None
    return Claim(request.headers.get("farhand-job"), int(lease))
