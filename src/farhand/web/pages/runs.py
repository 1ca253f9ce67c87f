"""The list of runs, live."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.responses import Response

from ...engine.services import Services
from ...lifecycle import RUN
from ..asking import Asking
from .shell import PageRoute, Visitor, render

router = APIRouter(route_class=PageRoute)
PAGE = 50


@router.get("/")
async def runs_page(
    request: Request,
    services: Asking,
    visitor: Visitor,
    flow: str = "",
    state: str = "",
    cursor: str = "",
) -> Response:
    """The page."""
    shown = await _rows(services, flow, state, cursor)
    flows = sorted(f.name for f in await services.flows.list())
    return render(request, "runs.html", visitor, flows=flows, states=tuple(RUN), **shown)


@router.get("/fragments/runs")
async def rows(
    request: Request,
    services: Asking,
    visitor: Visitor,
    flow: str = "",
    state: str = "",
    cursor: str = "",
) -> Response:
    """The rows of the table, as they are now."""
    shown = await _rows(services, flow, state, cursor)
    return render(request, "runs_rows.html", visitor, root="./", **shown)


async def _rows(services: Services, flow: str, state: str, cursor: str) -> dict[str, Any]:
    state = state if state in RUN else ""
    page = await services.runs.page(PAGE, cursor or None, flow or None, state or None)
    asked = {"flow": flow, "state": state}
    kept = {name: value for name, value in asked.items() if value}
    return {
        "runs": page.items,
        "older": urlencode(kept | {"cursor": page.next}) if page.next else "",
        "query": urlencode(kept | ({"cursor": cursor} if cursor else {})),
        "first": not cursor,
        **asked,
    }
