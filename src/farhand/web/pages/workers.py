"""The machines, live."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from ...engine.services import Services
from ..asking import Asking
from .shell import PageRoute, Visitor, render

router = APIRouter(route_class=PageRoute)


@router.get("/workers")
async def workers_page(request: Request, services: Asking, visitor: Visitor) -> Response:
    """The page."""
    return render(request, "workers.html", visitor, **await _shown(services))


@router.get("/fragments/workers")
async def rows(request: Request, services: Asking, visitor: Visitor) -> Response:
    """The rows of the table, as they are now."""
    return render(request, "workers_rows.html", visitor, root="./", **await _shown(services))


async def _shown(services: Services) -> dict[str, Any]:
    workers = await services.workers.list()
    names = [status.worker.name for status in workers]
    return {"workers": workers, "drift": {name: services.fitness.drift(name) for name in names}}
