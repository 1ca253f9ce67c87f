"""Whether the server is there, and whether it can work. Both answer without a credential."""

from __future__ import annotations

from starlette.responses import Response

from ..errors import FarhandError
from . import problems
from .answers import Status
from .asking import Asking
from .front import HEALTHY
from .routing import Routes
from .views import JsonResponse

router = Routes(tags=["health"])


@router.get("/healthz", response_model=Status)
async def healthz() -> JsonResponse:
    """The process answers."""
    return JsonResponse(HEALTHY)


@router.get("/readyz", response_model=Status)
async def readyz(services: Asking) -> Response:
    """The flows are read and the store answers; 503 while it is not so."""
    if not services.ready:
        return problems.problem(503, "starting", "the flows are being read")
    try:
        await services.runs.page(1)
    except FarhandError as error:
        return problems.problem(503, error.code, "the store does not answer")
    return JsonResponse({"status": "ready"})
