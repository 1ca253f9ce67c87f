"""Services: how each is, where, what it wrote; starting and stopping it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated

from fastapi import Depends

from ..engine.hosting import ServiceStatus
from ..engine.roles import Identity
from ..model import LogLine, Page, Service
from .access import require
from .asking import Asking
from .paging import After, Limit
from .routing import Routes
from .views import JsonResponse, list_view, page_view

router = Routes(prefix="/services", tags=["services"])
READ = [Depends(require("read"))]
Ordering = Annotated[Identity, Depends(require("services"))]


@dataclass(frozen=True, slots=True)
class ServiceView(Service):
    """A service as it is now.

    ``state`` is degraded, healthy, down or stopped; ``reason`` of degraded: starting, restarting, no_worker,
    health_timeout, health_refused, health_status or port_taken. ``url`` is where it is while it is healthy,
    ``path`` where it is used through this server, below its address.
    """

    url: str = ""
    path: str = ""


def service_view(status: ServiceStatus) -> ServiceView:
    """A service for the API."""
    shown = {known.name: getattr(status.service, known.name) for known in fields(Service)}
    return ServiceView(**shown, url=status.url, path=f"services/{status.service.name}/")


@router.get("", response_model=Page[ServiceView], dependencies=READ)
async def list_services(services: Asking) -> JsonResponse:
    """Every service of a flow that is offered, by name."""
    return JsonResponse(list_view([service_view(status) for status in await services.hosting.list()]))


@router.get("/{name}", response_model=ServiceView, dependencies=READ)
async def get_service(name: str, services: Asking) -> JsonResponse:
    """One service."""
    return JsonResponse(service_view(await services.hosting.get(name)))


@router.get("/{name}/logs", response_model=Page[LogLine], dependencies=READ)
async def service_logs(name: str, services: Asking, after: After = 0, limit: Limit = 1000) -> JsonResponse:
    """Lines of a service, of all its starts; ask again with the number of the last for those that follow."""
    return JsonResponse(page_view(await services.hosting.logs(name, after, limit)))


@router.post("/{name}/start", response_model=ServiceView)
async def start_service(name: str, services: Asking, _: Ordering) -> JsonResponse:
    """Start a service that was stopped, or try one again that is down."""
    return JsonResponse(service_view(await services.hosting.start(name)))


@router.post("/{name}/stop", response_model=ServiceView)
async def stop_service(name: str, services: Asking, _: Ordering) -> JsonResponse:
    """Stop a service, until somebody starts it."""
    return JsonResponse(service_view(await services.hosting.stop(name)))
