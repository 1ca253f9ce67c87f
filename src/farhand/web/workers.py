"""Workers, and the runtime they fetch."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Depends
from starlette.responses import FileResponse, Response

from ..engine import program
from ..model import Page, Worker
from .access import require
from .asking import Asking
from .views import JsonResponse, list_view

router = APIRouter(prefix="/workers", tags=["workers"])


@router.get("", response_model=Page[Worker], dependencies=[Depends(require("read"))])
async def list_workers(services: Asking) -> JsonResponse:
    """Every worker the server remembers."""
    return JsonResponse(list_view(await services.workers.list()))


@router.get("/runtime", response_class=FileResponse, dependencies=[Depends(require("runtime"))])
async def runtime(services: Asking) -> FileResponse:
    """The zip an engine runs from; its digest is the ETag and is named in a session's welcome."""
    digest = services.runtime
    return FileResponse(
        services.blobs.path(digest),
        media_type="application/zip",
        headers={"ETag": f'"{digest}"', "Farhand-Digest": digest},
    )


@router.get("/agent.pyz", response_class=Response, dependencies=[Depends(require("program"))])
async def agent_pyz() -> Response:
    """The worker's program as one file that any Python from 3.9 on starts; its digest is the ETag."""
    found = await asyncio.to_thread(program.program)
    return Response(
        found.content,
        media_type="application/zip",
        headers={
            "Content-Disposition": f'attachment; filename="{program.FILE_NAME}"',
            "ETag": f'"{found.digest}"',
            "Farhand-Digest": found.digest,
        },
    )


@router.get("/{name}", response_model=Worker, dependencies=[Depends(require("read"))])
async def get_worker(name: str, services: Asking) -> JsonResponse:
    """One worker."""
    return JsonResponse(await services.workers.get(name))
