"""The list of runs, live."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Depends, Request
from starlette.responses import Response

from ...engine.services import Services
from ...lifecycle import RUN
from ..asking import Asking
from ..routing import Routes
from .shell import PageRoute, Visitor, render

router = Routes(kind=PageRoute, described=False)
PAGE = 50


@dataclass(frozen=True, slots=True)
class Asked:
    """Which runs to list: the query of the page and of its fragment."""

    flow: str = ""
    state: str = ""
    text: str = ""
    sweep: str = ""
    host: str = ""
    cursor: str = ""

    def query(self, **other: str) -> str:
        """The same as a query, with other values for some."""
        return urlencode({name: value for name, value in (asdict(self) | other).items() if value})


Wanted = Annotated[Asked, Depends()]


@router.get("/")
async def runs_page(request: Request, services: Asking, visitor: Visitor, asked: Wanted) -> Response:
    """The page."""
    flows = sorted(flow.name for flow in await services.flows.list())
    shown = await _rows(services, asked)
    return render(request, "runs.html", visitor, flows=flows, states=tuple(RUN), **shown)


@router.get("/fragments/runs")
async def rows(request: Request, services: Asking, visitor: Visitor, asked: Wanted) -> Response:
    """The rows of the table, as they are now."""
    return render(request, "runs_rows.html", visitor, root="./", **await _rows(services, asked))


async def _rows(services: Services, asked: Asked) -> dict[str, Any]:
    page = await services.runs.page(
        PAGE,
        asked.cursor or None,
        asked.flow or None,
        asked.state if asked.state in RUN else None,
        text=asked.text or None,
        sweep=asked.sweep or None,
        host=asked.host or None,
    )
    return {
        "runs": page.items,
        "asked": asked,
        "query": asked.query(),
        "newest": asked.query(cursor=""),
        "older": asked.query(cursor=page.next) if page.next else "",
    }
