"""What becomes of an error that a route raises: a problem, without any secret that this server knows."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ..engine.services import Services
from ..errors import FarhandError
from .pages.shell import render
from .problems import internal, of_error, problem

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
    errors = [{"field": _field(e["loc"]), "message": _as_json_has_it(e["msg"])} for e in error.errors()]
    detail = "; ".join(f"{e['field']}: {e['message']}" for e in errors)
    return _masked(request, problem(422, "invalid_request", detail, errors=errors))


def _as_json_has_it(message: str) -> str:
    """What our records keep in tuples came as a list."""
    return message.replace("a valid tuple", "a valid list")


def _field(location: Iterable[Any]) -> str:
    """The dotted name of a field, without the part of the request it was in when that is the body."""
    parts = [str(part) for part in location]
    return ".".join(parts[1:] if len(parts) > 1 else parts)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404 and _is_of_a_browser(request):
        said = f"there is no page {request.url.path}"
        return render(request, "problem.html", status=404, said=said, code="not_found")
    code = _CODES.get(error.status_code, "error")
    return _masked(request, problem(error.status_code, code, str(error.detail), dict(error.headers or {})))


def _is_of_a_browser(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "") and not request.url.path.startswith("/api/")


def _masked(request: Request, response: Response) -> Response:
    return masked(request.app.state.services, response)


def masked(services: Services, response: Response) -> Response:
    """The same answer without any secret that this server knows."""
    text = bytes(response.body).decode()
    said = services.masker.json(text)
    if said != text:
        response.body = said.encode()
        response.headers["content-length"] = str(len(response.body))
    return response


async def _unexpected(request: Request, error: Exception) -> Response:
    return internal()
