"""The services, live: the list, and one of them with what it writes."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request
from starlette.responses import Response

from ...engine.services import Services
from ..asking import Asking
from ..routing import Routes
from .shell import PageRoute, Visitor, render

router = Routes(kind=PageRoute, described=False)
LINES = 200
LINES_MAX = 1000


@router.get("/services")
async def services_page(request: Request, services: Asking, visitor: Visitor) -> Response:
    """The page."""
    return render(request, "services.html", visitor, services=await services.hosting.list())


@router.get("/fragments/services")
async def rows(request: Request, services: Asking, visitor: Visitor) -> Response:
    """The rows of the table, as they are now."""
    shown = await services.hosting.list()
    return render(request, "services_rows.html", visitor, root="./", services=shown)


@router.get("/services/{name}")
async def service_page(request: Request, name: str, services: Asking, visitor: Visitor) -> Response:
    """One service."""
    shown = await _now(services, name)
    after = max(0, await _last_line(services, name) - LINES)
    page = await services.hosting.logs(name, after, LINES)
    return render(request, "service.html", visitor, tail=after, lines=page.items, more=False, **shown)


@router.get("/fragments/services/{name}")
async def now(request: Request, name: str, services: Asking, visitor: Visitor) -> Response:
    """What is known of it now."""
    return render(request, "service_now.html", visitor, root="../", **await _now(services, name))


@router.get("/fragments/services/{name}/lines")
async def lines(
    request: Request, name: str, services: Asking, visitor: Visitor, after: Annotated[int, Query(ge=0)] = 0
) -> Response:
    """The lines after a number."""
    page = await services.hosting.logs(name, after, LINES_MAX)
    return render(
        request, "run_lines.html", visitor, root="../", lines=page.items, more=page.next is not None
    )


async def _now(services: Services, name: str) -> dict[str, Any]:
    return {"seen": await services.hosting.get(name), "attempts": await services.hosting.attempts(name)}


async def _last_line(services: Services, name: str) -> int:
    return await services.hosting.last_line(name)
