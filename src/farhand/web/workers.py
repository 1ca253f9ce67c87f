"""Workers, and the runtime they fetch."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from starlette.responses import FileResponse

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


@router.get("/{name}", response_model=Worker, dependencies=[Depends(require("read"))])
async def get_worker(name: str, services: Asking) -> JsonResponse:
    """One worker."""
    return JsonResponse(await services.workers.get(name))
