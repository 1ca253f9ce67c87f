"""Projects: what the server has flows from, and taking one that is deployed."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from ..engine.packing import Offer
from ..engine.roles import Identity
from ..model import Page, Project
from .access import require
from .asking import Asking
from .routing import Routes
from .views import JsonResponse, list_view

router = Routes(prefix="/projects", tags=["projects"])
READ = [Depends(require("read"))]


@router.get("", response_model=Page[Project], dependencies=READ)
async def list_projects(services: Asking) -> JsonResponse:
    """Every project: where it comes from, what of it cannot be offered and why."""
    return JsonResponse(list_view(await services.projects.list()))


@router.get("/{name}", response_model=Project, dependencies=READ)
async def get_project(name: str, services: Asking) -> JsonResponse:
    """One project."""
    return JsonResponse(await services.projects.get(name))


@router.put("/{name}", response_model=Project)
async def deploy_project(
    name: str,
    offer: Offer,
    request: Request,
    services: Asking,
    identity: Annotated[Identity, Depends(require("deploy"))],
) -> JsonResponse:
    """Take a project whose bundle was uploaded: all of it, or nothing. 409 names the other project."""
    host = request.client.host if request.client else ""
    return JsonResponse(await services.projects.deploy(name, offer, f"{identity.name} at {host}"))
