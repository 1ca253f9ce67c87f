"""What starts by the clock, live, and holding it back."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request
from starlette.responses import RedirectResponse, Response

from ...engine.roles import Identity
from ..access import require
from ..asking import Asking
from ..routing import Routes
from .shell import PageRoute, Visitor, render

router = Routes(kind=PageRoute, described=False)
Operator = Annotated[Identity, Depends(require("schedules"))]


@router.get("/schedules")
async def schedules_page(request: Request, services: Asking, visitor: Visitor) -> Response:
    """The page."""
    return render(request, "schedules.html", visitor, schedules=await services.schedules.list())


@router.get("/fragments/schedules")
async def rows(request: Request, services: Asking, visitor: Visitor) -> Response:
    """The rows of the table, as they are now."""
    shown = await services.schedules.list()
    return render(request, "schedules_rows.html", visitor, root="./", schedules=shown)


@router.post("/schedules/{id}/pause")
async def pause(id: str, services: Asking, visitor: Operator) -> Response:
    """Pause, and show the page again."""
    await services.schedules.pause(id)
    return RedirectResponse("../../schedules", status_code=303)


@router.post("/schedules/{id}/resume")
async def resume(id: str, services: Asking, visitor: Operator) -> Response:
    """Resume, and show the page again."""
    await services.schedules.resume(id)
    return RedirectResponse("../../schedules", status_code=303)
