"""Errors as application/problem+json (RFC 9457), with a ``code`` that programs may rely on."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec
from starlette.responses import Response

from ..errors import FarhandError, InvalidParameters

MEDIA_TYPE = "application/problem+json"


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


def too_late(service: str, answer_s: float) -> Response:
    """The problem of a service that did not begin its answer in time."""
    detail = f"the service {service!r} did not begin its answer within {answer_s:g} s (service_answer_s)"
    return problem(504, "service_timeout", detail)


def _more(error: FarhandError) -> dict[str, Any]:
    """What a problem says beyond its sentence: the field at fault, as every 422 does, or details."""
    field = error.details.get("field")
    if isinstance(error, InvalidParameters) and field:
        return {"errors": [{"field": field, "message": str(error).removeprefix(f"{field}: ")}]}
    return {"details": error.details} if error.details else {}


def internal() -> Response:
    """The answer to a fault of our own: nothing of its text leaves the server."""
    return problem(500, "internal", "the server failed on this request; its log says why")
