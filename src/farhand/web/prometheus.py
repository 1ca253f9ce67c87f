"""What Prometheus scrapes at ``/metrics``."""

from __future__ import annotations

from fastapi import Depends
from starlette.responses import Response

from .access import require
from .asking import Asking
from .routing import Routes

router = Routes(tags=["health"])


@router.get("/metrics", response_class=Response, dependencies=[Depends(require("read"))])
async def metrics(services: Asking) -> Response:
    """The server's own figures in the text format of Prometheus; a scraper needs a viewer's token."""
    from .figures import CONTENT_TYPE, render  # noqa: PLC0415 - imported when somebody first scrapes

    return Response(render(services, await services.runs.counts()), media_type=CONTENT_TYPE)
