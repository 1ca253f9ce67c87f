"""Runs side by side: what they were given, what came of it, and their series in one chart each."""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec
from fastapi import Query, Request
from starlette.responses import Response

from ...comparison import comparison, defaults_of
from ...engine.services import Services
from ...errors import NotFound
from ..asking import Asking
from ..routing import Routes
from ..views import run_detail
from .charts import overlays
from .run import points_of
from .shell import PageRoute, Visitor, render

router = Routes(kind=PageRoute, described=False)
RUNS_MAX = 8


@router.get("/compare")
async def compare_page(
    request: Request, services: Asking, visitor: Visitor, run: Annotated[tuple[str, ...], Query()] = ()
) -> Response:
    """The page, for the runs that are named, the oldest first; of many, the first that were named."""
    asked = list(dict.fromkeys(run))
    found = sorted([await _look(services, id) for id in asked[:RUNS_MAX]], key=lambda run: run["created_at"])
    points = [await points_of(services, item["id"]) for item in found]
    return render(
        request,
        "compare.html",
        visitor,
        runs=found,
        facts=comparison(found) if len(found) > 1 else [],
        charts=overlays(points),
        left_out=len(asked) - len(found),
    )


async def _look(services: Services, id: str) -> dict[str, Any]:
    """A run as GET gives it, with the defaults of its parameters and the summaries of its series."""
    run = await services.runs.get(id)
    detail = run_detail(run, await services.runs.attempts(run.id))
    found: dict[str, Any] = json.loads(msgspec.json.encode(detail))
    found["defaults"] = defaults_of(found, await _flow(services, run.flow))
    found["metrics"] = msgspec.to_builtins(await services.runs.series(run.id))
    return found


async def _flow(services: Services, name: str) -> dict[str, Any] | None:
    try:
        return msgspec.to_builtins(await services.flows.get(name))
    except NotFound:  # a script's, or one that was deleted
        return None
