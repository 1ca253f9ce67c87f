"""What stands before the application, which takes longer to load than all else at a start.

It is loaded while the server's own worker starts and the flows are read. Until then `/healthz` is answered
here, and whatever else is asked waits. Workers are let in from here at once: a server that listens and does
not hear them would cost them their leases.
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
    """The ASGI application that a server listens with; ``attach`` answers the websockets of workers."""

    def __init__(self, settings: WebSettings, attach_path: str, attach: ASGIApp) -> None:
        self.settings = settings
        self._app: ASGIApp | None = None
        self._opened = asyncio.Event()
        base = settings.base_path.rstrip("/")
        self._attach = Guard(attach, settings)
        self._attach_paths = (attach_path, base + attach_path)
        self._healthy = Guard(_healthy, settings)
        self._health_paths = ("/healthz", f"{base}/healthz")

    def open(self, app: ASGIApp) -> None:
        """The application has come: what waits is answered by it, and all that follows."""
        self._app = app
        self._opened.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a worker in, or hand a request on, or say that the process lives, or have it wait."""
        if scope["type"] == "websocket" and scope["path"] in self._attach_paths:
            await self._attach(scope, receive, send)
            return
        if self._app is None and scope.get("method") == "GET" and scope["path"] in self._health_paths:
            await self._healthy(scope, receive, send)
            return
        while self._app is None:
            await self._opened.wait()
        await self._app(scope, receive, send)


async def _healthy(scope: Scope, receive: Receive, send: Send) -> None:
    await JsonResponse(HEALTHY)(scope, receive, send)
