"""The whole store and its files, as one file."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from fastapi import Depends
from starlette.concurrency import iterate_in_threadpool
from starlette.responses import StreamingResponse

from .access import require
from .asking import Asking
from .routing import Routes

router = Routes(tags=["backup"])


@router.post("/backup", response_class=StreamingResponse, dependencies=[Depends(require("backup"))])
async def take_backup(services: Asking) -> StreamingResponse:
    """A tar file of the store, the files that runs saved and the keys, as they are now; runs go on meanwhile.

    400 when the store is a PostgreSQL database, which pg_dump backs up.
    """
    services.backup.check()

    async def body() -> AsyncGenerator[bytes]:
        async with services.backup.taken() as pieces:
            async for piece in iterate_in_threadpool(pieces):
                yield piece

    return StreamingResponse(body(), media_type="application/x-tar")
