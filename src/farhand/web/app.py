"""The application: every group of routes, behind the guard."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from .. import __version__
from ..engine.services import Services
from . import (
    artifacts,
    audit,
    backup,
    deleting,
    description,
    doctor,
    events,
    flavors,
    flows,
    handlers,
    health,
    invitations,
    projects,
    prometheus,
    provisioners,
    runs,
    schedules,
    secrets,
    stream,
    tokens,
    variables,
    why,
    workers,
)
from . import (
    services as services_routes,
)
from .access import Sessions
from .guard import Guard
from .hosts import Hosts
from .openings import Openings
from .pages import PAGES, STATIC
from .pages.shell import environment
from .proxied import Proxied
from .quick import Quick
from .quick_artifacts import QuickArtifacts
from .routing import Table
from .settings import WebSettings

API = "/api/v1"

# `tokens` and `invitations` come before `workers`: /workers/tokens is not a worker called tokens.
_GROUPS = (
    flavors,
    flows,
    deleting,
    backup,
    projects,
    schedules,
    runs,
    why,
    tokens,
    invitations,
    workers,
    provisioners,
    artifacts,
    stream,
    events,
    secrets,
    services_routes,
    variables,
    audit,
    doctor,
    description,
)


class Api(FastAPI):
    """The framework, with our table of routes in place of its own, and one way past all of it."""

    def __init__(self, settings: WebSettings) -> None:
        super().__init__(title="farhand", version=__version__, openapi_url=None, redirect_slashes=False)
        own = [*(group.router for group in (health, prometheus, *PAGES))]
        self.table = Table([*((API, group.router) for group in _GROUPS), *(("", group) for group in own)])
        self.router.routes.append(self.table)
        guard = Guard(self, settings)
        self._entrance = Quick(QuickArtifacts(super().__call__, guard, self), guard, self.state)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._entrance(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document. The first time it takes a second, which belongs on a thread."""
        return self._document

    @cached_property
    def _document(self) -> dict[str, Any]:
        return get_openapi(title=self.title, version=self.version, routes=self.table.described())


def create_app(services: Services, settings: WebSettings | None = None) -> Api:
    """The HTTP API and the console over ``services``.

    ``app.state.sessions.link()`` gives the relative address that signs a browser in.
    """
    settings = settings or WebSettings()
    app = Api(settings)
    app.state.services = services
    app.state.settings = settings
    app.state.sessions = Sessions(settings, generation=lambda: services.tokens.generation)
    app.state.openings = Openings()
    app.state.hosts = Hosts(settings)
    app.state.templates = environment()
    handlers.install(app)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    audited: Any = audit.Audited
    proxied: Any = Proxied
    guard: Any = Guard
    app.add_middleware(audited)
    app.add_middleware(proxied)
    app.add_middleware(guard, settings=settings)
    return app
