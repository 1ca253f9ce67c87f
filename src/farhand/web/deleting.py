"""Deleting runs and flows: in batches, so that no answer takes long and whoever is interrupted can go on."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, HTTPException, Query
from starlette.responses import Response

from ..engine.pruner import Deleted
from ..lifecycle import RUN
from .access import require
from .answers import FlowDeleted
from .asking import Asking
from .etags import IfMatch, expected_etag
from .paging import Cursor
from .routing import Routes
from .views import JsonResponse

router = Routes(tags=["runs"])
DELETE = [Depends(require("delete"))]


@router.delete("/runs", response_model=Deleted, dependencies=DELETE)
async def delete_runs(
    services: Asking,
    limit: Annotated[int, Query(ge=1, le=500, description="How many runs are looked at.")] = 200,
    cursor: Cursor = None,
    flow: str | None = None,
    state: Annotated[str | None, Query(description=f"One of {', '.join(RUN)}.")] = None,
    sweep: str | None = None,
    host: str | None = None,
    before: Annotated[
        float | None, Query(ge=0, le=1e11, description="Created before; seconds since the epoch.")
    ] = None,
) -> JsonResponse:
    """Delete one batch of the runs that fit, with all they left; ask again with `next` until it is null.

    Runs that are not over are refused and counted. At least one condition is needed.
    """
    if flow is state is sweep is host is before is None:
        raise HTTPException(422, "say which runs by flow, state, sweep, host or before")
    if state is not None and state not in RUN:
        raise HTTPException(422, f"state: must be one of {', '.join(RUN)}")
    return JsonResponse(
        await services.pruner.delete_runs(
            limit, cursor, flow=flow, state=state, sweep=sweep, host=host, before=before
        )
    )


@router.delete("/runs/{id}", status_code=204, dependencies=DELETE)
async def delete_run(id: str, services: Asking) -> Response:
    """Delete one run with all it left. 409 while it is not over."""
    await services.pruner.delete_run((await services.runs.get(id)).id)
    return Response(status_code=204)


@router.delete("/flows/{name}", status_code=202, response_model=FlowDeleted, dependencies=DELETE)
async def delete_flow(
    name: str,
    services: Asking,
    force: Annotated[
        bool, Query(description="Cancel its runs that are not over, of a flow that was put.")
    ] = False,
    if_match: IfMatch = None,
) -> JsonResponse:
    """Delete a flow that was put, or that its project has no more, and all its runs.

    They are gone from every list at once. 409 while runs of it are not over, unless forced.
    """
    runs = await services.declared.delete(name, forced=force, expected=expected_etag(if_match))
    return JsonResponse(FlowDeleted(name, runs), status_code=202)
