"""Flows: what there is to run, and starting one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fastapi import Depends, Request

from ..model import Flow, Page
from .access import require
from .asking import Asking
from .audit import told
from .routing import Routes
from .views import JsonResponse, RunView, list_view, run_view

router = Routes(tags=["flows"])


@dataclass(frozen=True, slots=True)
class Start:
    """What a run is started with. The same ``idempotency_key`` again gives the same run again.

    Runs of one ``sweep`` are listed together.
    """

    params: dict[str, Any] = field(default_factory=dict[str, Any])
    idempotency_key: str | None = None
    sweep: str | None = None


@router.get("/flows", response_model=Page[Flow], dependencies=[Depends(require("read"))])
async def list_flows(services: Asking) -> JsonResponse:
    """Every flow the server knows."""
    return JsonResponse(list_view(await services.flows.list()))


@router.get("/flows/{name}", response_model=Flow, dependencies=[Depends(require("read"))])
async def get_flow(name: str, services: Asking) -> JsonResponse:
    """One flow with the JSON schema of its parameters."""
    return JsonResponse(await services.flows.get(name))


@router.post(
    "/flows/{name}/runs",
    status_code=202,
    response_model=RunView,
    dependencies=[Depends(require("start"))],
)
async def start_run(
    request: Request, name: str, services: Asking, start: Start | None = None
) -> JsonResponse:
    """Queue a run. 422 names the parameter that does not fit."""
    start, entry = start or Start(), told(request, 202)
    run = await services.runs.start(name, start.params, start.idempotency_key, start.sweep, told=entry)
    return JsonResponse(run_view(run), status_code=202, headers={"Location": f"../../runs/{run.id}"})
