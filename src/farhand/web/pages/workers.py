"""The machines, live."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from ..asking import Asking
from .shell import PageRoute, Visitor, render

router = APIRouter(route_class=PageRoute)


@router.get("/workers")
async def workers_page(request: Request, services: Asking, visitor: Visitor) -> Response:
    """The page."""
    return render(request, "workers.html", visitor, workers=await services.workers.list())


@router.get("/fragments/workers")
async def rows(request: Request, services: Asking, visitor: Visitor) -> Response:
    """The rows of the table, as they are now."""
    return render(request, "workers_rows.html", visitor, root="./", workers=await services.workers.list())
