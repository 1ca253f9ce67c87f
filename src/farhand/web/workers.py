"""Workers, what people order them to do, and the runtime they fetch."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

from fastapi import Depends, Request
from pydantic import Field
from starlette.responses import FileResponse, Response

from ..engine import program
from ..engine.fitness import FlowCode
from ..engine.operations import SLOTS_MAX
from ..engine.roles import Identity
from ..engine.usage import Usage
from ..engine.workers import Held, WorkerStatus
from ..model import Page, Worker
from .access import Invited, require
from .asking import Asking
from .audit import note
from .routing import Routes
from .views import JsonResponse, list_view

router = Routes(prefix="/workers", tags=["workers"])
Ordering = Annotated[Identity, Depends(require("workers"))]


@dataclass(frozen=True, slots=True)
class WorkerView(Worker):
    """A worker as it is now. ``message`` is a sentence about its state, ``holds`` what is in its slots,
    ``used`` what that asked for, added up. ``drained``: it is ``draining``, and nothing is left on it.
    ``warning`` is something about it that somebody may want to change, mostly empty. ``needs_token``: it is
    offline, and its token has been revoked or has expired. ``trouble`` is why it can take nothing."""

    message: str = ""
    draining: bool = False
    drained: bool = False
    needs_token: bool = False
    trouble: str = ""
    warning: str = ""
    holds: tuple[Held, ...] = ()
    clock_ahead_s: float | None = None
    used: Mapping[str, int] = field(default_factory=dict)


_TOLD = (
    "message",
    "draining",
    "drained",
    "needs_token",
    "trouble",
    "warning",
    "holds",
    "clock_ahead_s",
    "used",
)


@dataclass(frozen=True, slots=True)
class Slots:
    """How many slots a worker is to have."""

    parallel: Annotated[int, Field(ge=0, le=SLOTS_MAX)]


@dataclass(frozen=True, slots=True)
class Forgetting:
    """``settle``: queue what it holds again at once, since its machine is surely dead."""

    settle: bool = False


def worker_view(status: WorkerStatus) -> WorkerView:
    """A worker for the API."""
    told = {name: getattr(status, name) for name in _TOLD}
    return WorkerView(**{known.name: getattr(status.worker, known.name) for known in fields(Worker)}, **told)


@router.get("", response_model=Page[WorkerView], dependencies=[Depends(require("read"))])
async def list_workers(services: Asking) -> JsonResponse:
    """Every worker the server remembers."""
    return JsonResponse(list_view([worker_view(status) for status in await services.workers.list()]))


@router.get("/runtime", response_class=FileResponse, dependencies=[Depends(require("runtime"))])
async def runtime(services: Asking) -> FileResponse:
    """The zip an engine runs from; its digest is the ETag and is named in a session's welcome."""
    digest = services.runtime
    return FileResponse(
        services.blobs.path(digest),
        media_type="application/zip",
        headers={"ETag": f'"{digest}"', "Farhand-Digest": digest},
    )


@router.get("/resources", response_model=Usage, dependencies=[Depends(require("read"))])
async def resources(services: Asking) -> JsonResponse:
    """What is free on each attached worker, which job holds the rest, and what queued jobs wait for."""
    return JsonResponse(services.resources.usage())


@router.get("/agent.pyz", response_class=Response, dependencies=[Depends(Invited("program"))])
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


@router.get("/{name}/code", response_model=Page[FlowCode], dependencies=[Depends(require("read"))])
async def code(name: str, services: Asking) -> JsonResponse:
    """What a worker has of each flow: ready, not checked yet, or what is against it, with the files."""
    known = await services.workers.get(name)
    return JsonResponse(list_view(services.fitness.code_of(known.worker.name, await services.flows.list())))


@router.get("/{name}", response_model=WorkerView, dependencies=[Depends(require("read"))])
async def get_worker(name: str, services: Asking) -> JsonResponse:
    """One worker."""
    return JsonResponse(worker_view(await services.workers.get(name)))


@router.patch("/{name}", response_model=WorkerView)
async def change_worker(
    request: Request, name: str, new: Slots, services: Asking, _: Ordering
) -> JsonResponse:
    """Give an attached worker so many slots, until its program is started anew."""
    note(request, parallel=new.parallel)
    await services.operations.set_slots(name, new.parallel)
    return JsonResponse(worker_view(await services.workers.get(name)))


@router.post("/{name}/drain")
async def drain_worker(name: str, services: Asking, who: Ordering) -> JsonResponse:
    """Hand the worker nothing new but what its own jobs need, until it is resumed."""
    return _ordered(name, await services.operations.drain(name, who.name))


@router.post("/{name}/resume")
async def resume_worker(name: str, services: Asking, who: Ordering) -> JsonResponse:
    """Hand the worker jobs again."""
    return _ordered(name, await services.operations.resume(name, who.name))


@router.post("/{name}/forget")
async def forget_worker(
    request: Request, name: str, services: Asking, _: Ordering, how: Forgetting | None = None
) -> JsonResponse:
    """Forget a worker that is gone. Refused while it is attached, or holds jobs that are not settled."""
    settle = (how or Forgetting()).settle
    note(request, settle=settle)
    return JsonResponse({"name": name, "settled": await services.operations.forget(name, settle)})


def _ordered(name: str, changed: bool) -> JsonResponse:
    answer: dict[str, Any] = {"name": name, "changed": changed}
    return JsonResponse(answer)
