"""What the server runs on, and what is wrong with it."""

from __future__ import annotations

from fastapi import Depends

from ..engine.doctor import Report
from .access import require
from .asking import Asking
from .routing import Routes
from .views import JsonResponse

router = Routes(tags=["doctor"])


@router.get("/doctor", response_model=Report, dependencies=[Depends(require("doctor"))])
async def doctor(services: Asking) -> JsonResponse:
    """Settings with their sources, versions, the store's own check, disk, capacity, clocks, and findings."""
    return JsonResponse(await services.doctor.report())
