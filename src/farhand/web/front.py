"""What stands before the application while it is being loaded.

Loading the routes and the console takes longer than all else that a server does at its start, so that happens
while the server's own worker starts and the flows are read. Until then `/healthz` is answered here, and
whatever else is asked waits.
"""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Receive, Scope, Send

from .guard import Guard
from .settings import WebSettings
from .views import JsonResponse

HEALTHY = {"status": "ok"}
"""What the health check of a process that answers says."""


class Front:
    """The ASGI application that a server listens with."""

    def __init__(self, settings: WebSettings) -> None:
        self.settings = settings
        self._app: ASGIApp | None = None
        self._opened = asyncio.Event()
        self._healthy = Guard(_healthy, settings)
        self._health = ("/healthz", f"{settings.base_path.rstrip('/')}/healthz")

    def open(self, app: ASGIApp) -> None:
        """The application has come: what waits is answered by it, and all that follows."""
        self._app = app
        self._opened.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on, or say that the process lives, or have it wait."""
        if self._app is None and scope.get("method") == "GET" and scope["path"] in self._health:
            await self._healthy(scope, receive, send)
            return
        while self._app is None:
            await self._opened.wait()
        await self._app(scope, receive, send)


async def _healthy(scope: Scope, receive: Receive, send: Send) -> None:
    await JsonResponse(HEALTHY)(scope, receive, send)
