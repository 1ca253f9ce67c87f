"""Where the flows come from, and what of it cannot be offered, live."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from ..asking import Asking
from ..routing import Routes
from .shell import PageRoute, Visitor, render

router = Routes(kind=PageRoute, described=False)


@router.get("/projects")
async def projects_page(request: Request, services: Asking, visitor: Visitor) -> Response:
    """The page."""
    return render(request, "projects.html", visitor, projects=await services.projects.list())


@router.get("/fragments/projects")
async def rows(request: Request, services: Asking, visitor: Visitor) -> Response:
    """The projects, as they are now."""
    shown = await services.projects.list()
    return render(request, "projects_rows.html", visitor, root="./", projects=shown)
