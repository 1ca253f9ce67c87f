"""What can run: the list of flows, and a flow with its schedules, its recent runs and a form to start one."""

from __future__ import annotations

import json
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import Depends, Request
from starlette.responses import RedirectResponse, Response

from ...engine.services import Services
from ...errors import InvalidParameters
from ...model import Flow
from ...sdk.ids import new_id
from ..access import require
from ..asking import Asking
from ..routing import Routes
from ..settings import WebSettings
from . import forms
from .shell import PageRoute, Visitor, render

router = Routes(kind=PageRoute, described=False)
ROOT = "../"
RECENT = 10


@router.get("/flows")
async def flows_page(request: Request, services: Asking, visitor: Visitor) -> Response:
    """The page."""
    return render(request, "flows.html", visitor, **await _rows(services))


@router.get("/fragments/flows")
async def rows(request: Request, services: Asking, visitor: Visitor) -> Response:
    """The rows of the table, as they are now."""
    return render(request, "flows_rows.html", visitor, root="./", **await _rows(services))


@router.get("/flows/{name}")
async def flow_page(
    request: Request, name: str, services: Asking, visitor: Visitor, like: str = ""
) -> Response:
    """One flow. ``like`` names a run whose parameters the form begins with."""
    flow = await services.flows.get(name)
    params = json.loads((await services.runs.get(like)).params) if like else {}
    fields = forms.fields(flow.schema, forms.filled_with(flow.schema, params))
    return render(
        request, "flow.html", visitor, fields=fields, wrong="", **await _shown(request, services, flow)
    )


@router.post("/flows/{name}/start")
async def start_flow(
    request: Request, name: str, services: Asking, visitor: Annotated[Any, Depends(require("start"))]
) -> Response:
    """Start a run and show it; or the form again, with what is wrong with it."""
    flow = await services.flows.get(name)
    sent = parse_qs((await request.body()).decode("utf-8", "replace"), keep_blank_values=True)
    filled = forms.filled_in(sent)
    key = "".join(sent.get("key", [])) or None
    try:
        run = await services.runs.start(name, forms.params_of(flow.schema, filled), key)
    except InvalidParameters as error:
        fields = forms.fields(flow.schema, filled, error)
        wrong = "" if any(field.error for field in fields) else str(error)
        shown = await _shown(request, services, flow)
        return render(
            request, "flow.html", visitor, status=422, root="../../", fields=fields, wrong=wrong, **shown
        )
    return RedirectResponse(f"../../runs/{run.id}", status_code=303)


@router.get("/flows/{name}/runs")
async def recent(request: Request, name: str, services: Asking, visitor: Visitor) -> Response:
    """The flow's latest runs, as they are now."""
    runs = (await services.runs.page(RECENT, None, name)).items
    return render(request, "flow_runs.html", visitor, root=ROOT, runs=runs)


@router.get("/flows/{name}/schedules")
async def schedules(request: Request, name: str, services: Asking, visitor: Visitor) -> Response:
    """The flow's schedules, as they are now."""
    shown = await _schedules(services, name)
    return render(request, "schedules_rows.html", visitor, root=ROOT, schedules=shown, of_flow=True)


async def _rows(services: Services) -> dict[str, Any]:
    flows = sorted(await services.flows.list(), key=lambda flow: (not flow.present, flow.name))
    due: dict[str, float] = {}
    for planned in await services.schedules.list():
        if planned.next:
            name = planned.schedule.flow
            due[name] = min(planned.next[0], due.get(name, planned.next[0]))
    latest = {flow.name: (await services.runs.page(1, None, flow.name)).items for flow in flows}
    return {"flows": flows, "due": due, "latest": latest}


async def _shown(request: Request, services: Services, flow: Flow) -> dict[str, Any]:
    settings: WebSettings = request.app.state.settings
    return {
        "url": settings.url or "URL",
        "flow": flow,
        "key": new_id(),
        "schema": json.dumps(flow.schema, indent=2, ensure_ascii=False),
        "schedules": await _schedules(services, flow.name),
        "of_flow": True,
        "runs": (await services.runs.page(RECENT, None, flow.name)).items,
    }


async def _schedules(services: Services, name: str) -> list[Any]:
    return [planned for planned in await services.schedules.list() if planned.schedule.flow == name]
