"""Flows: what there is to run, and starting one."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Annotated, Any

import msgspec
from fastapi import Depends, Request
from starlette.exceptions import HTTPException

from ..engine.roles import Identity
from ..model import Flow, Json, Page, Version
from .access import require
from .asking import Asking
from .audit import note, told
from .etags import IfMatch, IfNoneMatch, expected_etag, quoted
from .routing import Routes
from .views import JsonResponse, RunView, list_view, run_view

router = Routes(tags=["flows"])

BYTES_MAX = 1024 * 1024
"""The size of a document."""

DOCUMENT_BODY: Json = {
    "required": True,
    "content": {"application/json": {"schema": {"type": "object", "required": ["nodes"]}}},
}


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


@dataclass(frozen=True, slots=True)
class FlowDetail(Flow):
    """A flow. Of a declared one also its ``document`` and the number of that ``version``."""

    document: Json | None = None
    version: int | None = None


@router.get("/flows/{name}", response_model=FlowDetail, dependencies=[Depends(require("read"))])
async def get_flow(name: str, services: Asking) -> JsonResponse:
    """One flow with the JSON schema of its parameters; of a declared one the document, and its ETag."""
    flow = await services.flows.get(name)
    version = await services.declared.latest(name)
    shown = {field.name: getattr(flow, field.name) for field in fields(Flow)}
    if version is None:
        return JsonResponse(FlowDetail(**shown))
    detail = FlowDetail(**shown, document=version.document, version=version.number)
    return JsonResponse(detail, headers={"ETag": quoted(version.etag)})


@router.get("/flows/{name}/versions", response_model=Page[Version], dependencies=[Depends(require("read"))])
async def list_versions(name: str, services: Asking) -> JsonResponse:
    """Every version of a declared flow with its document, the newest first."""
    return JsonResponse(list_view(await services.declared.versions(name)))


@router.put(
    "/flows/{name}",
    response_model=Version,
    openapi_extra={"requestBody": DOCUMENT_BODY, "x-max-bytes": BYTES_MAX},
)
async def put_flow(
    name: str,
    request: Request,
    services: Asking,
    who: Annotated[Identity, Depends(require("deploy"))],
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> JsonResponse:
    """Keep a document as a flow's newest version; docs/declared.md says what is in one.

    422 lists every mistake with its node, and nothing is kept. 412 when the flow is not what `If-Match`
    names, or is there although `If-None-Match: *` says that it is not.
    """
    document = await read_document(request)
    version = await services.declared.put(name, document, who.name, expected_etag(if_match, if_none_match))
    note(request, version=version.number)
    return JsonResponse(version, headers={"ETag": quoted(version.etag)})


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


async def read_document(request: Request) -> Json:
    """The JSON object in the body of a request."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > BYTES_MAX:
            raise HTTPException(413, f"a document may have {BYTES_MAX} bytes")
    try:
        return msgspec.json.decode(body, type=Json)
    except (msgspec.DecodeError, RecursionError) as error:
        raise HTTPException(400, f"the body must be a JSON object: {error}") from error
