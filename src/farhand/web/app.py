"""The application: every group of routes, behind the guard."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from starlette.staticfiles import StaticFiles

from .. import __version__
from ..engine.services import Services
from . import (
    artifacts,
    audit,
    backup,
    deleting,
    doctor,
    events,
    flavors,
    flows,
    health,
    invitations,
    problems,
    projects,
    prometheus,
    runs,
    schedules,
    secrets,
    stream,
    tokens,
    variables,
    why,
    workers,
)
from .access import Sessions
from .guard import Guard
from .pages import STATIC, router
from .pages.shell import environment
from .quick import Quick
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
    artifacts,
    stream,
    events,
    secrets,
    variables,
    audit,
    doctor,
)


def create_app(services: Services, settings: WebSettings | None = None) -> FastAPI:
    """The HTTP API and the console over ``services``.

    ``app.state.sessions.link()`` gives the relative address that signs a browser in.
    """
    settings = settings or WebSettings()
    app = FastAPI(
        title="farhand",
        version=__version__,
        openapi_url=f"{API}/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.services = services
    app.state.settings = settings
    app.state.sessions = Sessions(settings, generation=lambda: services.tokens.generation)
    app.state.templates = environment()
    problems.install(app)
    for group in _GROUPS:
        app.include_router(group.router, prefix=API)
    app.include_router(health.router)
    app.include_router(prometheus.router)
    app.include_router(router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    quick: Any = Quick
    audited: Any = audit.Audited
    guard: Any = Guard
    app.add_middleware(quick)
    app.add_middleware(audited)
    app.add_middleware(guard, settings=settings)
    return app
