"""The event log."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query

from ..model import Event, Page
from .access import require
from .asking import Asking
from .paging import Cursor, Limit
from .routing import Routes
from .views import JsonResponse, page_view

router = Routes(tags=["events"])


@router.get("/events", response_model=Page[Event], dependencies=[Depends(require("read"))])
async def list_events(
    services: Asking,
    limit: Limit = 50,
    cursor: Cursor = None,
    worker: Annotated[str | None, Query(description="Only what concerns this worker.")] = None,
    run: Annotated[str | None, Query(description="Only what concerns this run.")] = None,
    kind: Annotated[
        str | None, Query(description="Only this kind, such as worker.lost; worker. is all of them.")
    ] = None,
) -> JsonResponse:
    """What happened, the newest first."""
    return JsonResponse(page_view(await services.workers.events(limit, cursor, worker, run, kind)))
