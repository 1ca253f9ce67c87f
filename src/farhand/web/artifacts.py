"""Blobs by digest: a person reads what the role allows, a worker what its jobs need and by their leases.

A body comes whole, or in parts (RFC 9110, section 14.5): ``Content-Range: bytes 0-4194303/52428800``, each
part where the one before ended. ``bytes */52428800`` without a body asks how far it has come. A worker that
sees the directory of blobs may lay it there, and asks by ``Farhand-Laid: TOKEN SIZE`` that it be taken.
"""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Depends, Header, Request
from starlette.responses import FileResponse

from ..blobs.arriving import Body, Streamed
from ..engine.blob_access import Claim
from ..engine.roles import WORKER, Identity
from ..engine.services import Services
from ..errors import Usage
from ..receiving import BODY
from .access import require
from .asking import Asking
from .routing import Routes
from .views import JsonResponse

router = Routes(prefix="/artifacts", tags=["artifacts"])

SANDBOX = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""The policy of content that users made: it may not run, and may load nothing."""

_LAID = re.compile(r"([0-9a-f]{32}) (\d{1,15})")
_CONTENT_RANGE = re.compile(r"bytes (?:(\d{1,15})-(\d{1,15})|\*)/(\d{1,15})")


def claim(
    farhand_job: Annotated[str | None, Header()] = None,
    farhand_lease: Annotated[int | None, Header()] = None,
) -> Claim:
    """The job and lease in whose name a worker asks."""
    return Claim(farhand_job, farhand_lease)


Reader = Annotated[Identity, Depends(require("artifact_read"))]
Writer = Annotated[Identity, Depends(require("artifact_write"))]
Claimed = Annotated[Claim, Depends(claim)]


class _Blob(FileResponse):
    """Read in large pieces: each costs a turn of a thread and of everything between here and the socket."""

    chunk_size = 1024 * 1024


def download(services: Services, digest: str, name: str | None = None) -> FileResponse:
    """A blob as a file to save, whatever is in it. Ranges are honoured by `FileResponse`."""
    path = services.blobs.path(digest)
    return _Blob(
        path,
        stat_result=path.stat(),
        media_type="application/octet-stream",
        filename=name or digest.replace(":", "-"),
        headers={
            "ETag": f'"{digest}"',
            "Cache-Control": "private, max-age=31536000, immutable",
            "Content-Security-Policy": SANDBOX,
        },
    )


@router.get("/{digest}", response_class=FileResponse)
async def read_artifact(digest: str, services: Asking, identity: Reader, claim: Claimed) -> FileResponse:
    """The content of a digest; a part of it when a Range asks for one. A worker names its job and lease."""
    if identity.role == WORKER:
        await services.blob_access.check_read(identity.name, claim, digest)
    return download(services, digest)


@router.head("/{digest}", response_class=FileResponse)
async def find_artifact(digest: str, services: Asking, identity: Reader, claim: Claimed) -> FileResponse:
    """Whether the content of a digest is here, and how large it is. Whoever asks may be about to name it."""
    if identity.role == WORKER:
        await services.blob_access.check_write(identity.name, claim)
    services.blobs.has(digest)
    return download(services, digest)


@router.put("/{digest}", status_code=201)
async def write_artifact(
    digest: str,
    request: Request,
    services: Asking,
    identity: Writer,
    claim: Claimed,
    content_range: Annotated[str | None, Header()] = None,
    farhand_laid: Annotated[str | None, Header()] = None,
) -> JsonResponse:
    """Keep the body under its digest; 422 when it is another's, 202 when it is a part and more is to come.

    `Farhand-Laid` asks a server to take what its worker has laid in the server's own directory.
    """
    sender = identity.name
    if identity.role == WORKER:
        sender = await services.blob_access.check_write(identity.name, claim)
    if services.blobs.has(digest):
        return JsonResponse({"digest": digest, "size": services.blobs.size(digest)}, status_code=200)
    if farhand_laid is not None:
        token, size = _laid(farhand_laid)
        settled = await services.blobs.laid.settle(digest, token, size)
        return JsonResponse({"digest": digest, "size": size}, status_code=201 if settled else 202)
    if content_range is None:
        size = await services.blobs.write(_body(request), digest)
        return JsonResponse({"digest": digest, "size": size}, status_code=201)
    start, size = _part(content_range)
    parts = services.blobs.parts
    received = parts.received(digest, sender)
    if start is not None:
        received = await parts.append(digest, sender, start, _body(request))
    if received < size:
        return JsonResponse({"digest": digest, "received": received}, status_code=202)
    await parts.finish(digest, sender)
    return JsonResponse({"digest": digest, "size": size}, status_code=201)


def _body(request: Request) -> Body:
    """What is sent: poured from its connection where the server's own connections offer that."""
    poured: Body | None = request.scope.get("extensions", {}).get(BODY)
    return Streamed(request.stream()) if poured is None else poured


def _laid(text: str) -> tuple[str, int]:
    """The token of a laid file, and how large it is."""
    match = _LAID.fullmatch(text)
    if match is None:
        raise Usage("Farhand-Laid reads `TOKEN SIZE`")
    return match.group(1), int(match.group(2))


def _part(content_range: str) -> tuple[int | None, int]:
    """Where a part begins, None when none is sent, and how large the whole is."""
    match = _CONTENT_RANGE.fullmatch(content_range)
    if match is None:
        raise Usage("Content-Range reads `bytes FIRST-LAST/SIZE`, or `bytes */SIZE` to ask how much is here")
    first, last, size = match.groups()
    if first is None:
        return None, int(size)
    if not int(first) <= int(last) < int(size):
        raise Usage(f"Content-Range: {content_range} is no part of a whole")
    return int(first), int(size)
