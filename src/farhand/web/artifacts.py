"""Blobs by digest: read as streams, written only by those who hold a live lease."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request
from starlette.responses import FileResponse

from ..engine.roles import Identity
from ..engine.services import Services
from ..errors import NotYourArtifact
from .access import require
from .asking import Asking
from .views import JsonResponse

router = APIRouter(prefix="/artifacts", tags=["artifacts"])
READ = [Depends(require("artifact_read"))]

SANDBOX = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""The policy of content that users made: it may not run, and may load nothing."""


def download(services: Services, digest: str, name: str | None = None) -> FileResponse:
    """A blob as a file to save, whatever is in it. Ranges are honoured by `FileResponse`."""
    return FileResponse(
        services.blobs.path(digest),
        media_type="application/octet-stream",
        filename=name or digest.replace(":", "-"),
        headers={
            "ETag": f'"{digest}"',
            "Cache-Control": "private, max-age=31536000, immutable",
            "Content-Security-Policy": SANDBOX,
        },
    )


@router.get("/{digest}", response_class=FileResponse, dependencies=READ)
async def read_artifact(digest: str, services: Asking) -> FileResponse:
    """The content of a digest; a part of it when a Range asks for one."""
    return download(services, digest)


@router.head("/{digest}", response_class=FileResponse, dependencies=READ)
async def find_artifact(digest: str, services: Asking) -> FileResponse:
    """Whether the content of a digest is here, and how large it is. Whoever asks may be about to name it."""
    services.blobs.has(digest)
    return download(services, digest)


@router.put("/{digest}", status_code=201)
async def write_artifact(
    digest: str,
    request: Request,
    services: Asking,
    identity: Annotated[Identity, Depends(require("artifact_write"))],
    farhand_job: Annotated[str | None, Header()] = None,
    farhand_lease: Annotated[int | None, Header()] = None,
) -> JsonResponse:
    """Keep the body under its digest; 422 when it is another's. A worker names its job and lease."""
    if identity.role == "worker":
        await _check_lease(services, identity.name, farhand_job, farhand_lease)
    if services.blobs.has(digest):
        return JsonResponse({"digest": digest, "size": services.blobs.size(digest)}, status_code=200)
    size = await services.blobs.write(request.stream(), digest)
    return JsonResponse({"digest": digest, "size": size}, status_code=201)


async def _check_lease(services: Services, worker: str, job: str | None, lease: int | None) -> None:
    if job is None or lease is None:
        raise NotYourArtifact("a worker's upload names its job and lease: Farhand-Job, Farhand-Lease")
    held = services.fleet.holder(job)
    if held is not None and held[0].name != worker:
        raise NotYourArtifact("another worker holds that job")
    if not await services.runs.lease_is_current(job, lease):
        raise NotYourArtifact("the lease of this upload is not current; whoever sends it must stop")
