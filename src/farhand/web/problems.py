"""Errors as application/problem+json (RFC 9457), with a ``code`` that programs may rely on."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ..engine.services import Services
from ..errors import FarhandError, InvalidParameters

MEDIA_TYPE = "application/problem+json"
_log = logging.getLogger(__name__)

_CODES = {
    400: "bad_request",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    416: "range_not_satisfiable",
    422: "invalid_request",
}
"""Codes of what the framework itself refuses."""


def problem(
    status: int, code: str, detail: str, headers: dict[str, str] | None = None, **more: Any
) -> Response:
    """One error as a response. ``more`` are further members, such as ``errors``."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "code": code}
    return Response(
        msgspec.json.encode(body | {"detail": detail} | more),
        status_code=status,
        media_type=MEDIA_TYPE,
        headers=headers,
    )


def of_error(error: FarhandError) -> Response:
    """The problem a `FarhandError` stands for. What is the server's own fault says no more than that."""
    if error.status == 500:
        return internal()
    headers = {"WWW-Authenticate": 'Bearer realm="farhand"'} if error.status == 401 else None
    return problem(error.status, error.code, str(error), headers, **_more(error))


def _more(error: FarhandError) -> dict[str, Any]:
    """What a problem says beyond its sentence: the field at fault, as every 422 does, or details."""
    field = error.details.get("field")
    if isinstance(error, InvalidParameters) and field:
        return {"errors": [{"field": field, "message": str(error).removeprefix(f"{field}: ")}]}
    return {"details": error.details} if error.details else {}


def internal() -> Response:
    """The answer to a fault of our own: nothing of its text leaves the server."""
    return problem(500, "internal", "the server failed on this request; its log says why")


def install(app: FastAPI) -> None:
    """Make ``app`` answer every error as a problem."""
    app.add_exception_handler(FarhandError, _farhand_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected)


async def answer(request: Request, error: FarhandError | HTTPException) -> Response:
    """The problem an error stands for, for a layer that the handlers below do not see."""
    handler = _farhand_error if isinstance(error, FarhandError) else _http_error
    return await handler(request, error)


async def _farhand_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, FarhandError)
    if error.status == 500:
        _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return _masked(request, of_error(error))


async def _validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    errors = [{"field": _field(e["loc"]), "message": e["msg"]} for e in error.errors()]
    detail = "; ".join(f"{e['field']}: {e['message']}" for e in errors)
    return _masked(request, problem(422, "invalid_request", detail, errors=errors))


def _field(location: Iterable[Any]) -> str:
    """The dotted name of a field, without the part of the request it was in when that is the body."""
    parts = [str(part) for part in location]
    return ".".join(parts[1:] if len(parts) > 1 else parts)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = _CODES.get(error.status_code, "error")
    return _masked(request, problem(error.status_code, code, str(error.detail), dict(error.headers or {})))


def _masked(request: Request, response: Response) -> Response:
    """The same answer without any secret that this server knows."""
    services: Services = request.app.state.services
    text = bytes(response.body).decode()
    masked = services.masker.json(text)
    if masked != text:
        response.body = masked.encode()
        response.headers["content-length"] = str(len(response.body))
    return response


async def _unexpected(request: Request, error: Exception) -> Response:
    return internal()
