"""What can start machines, what was asked of it, and a test of it."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Depends, Request

from ..engine.machines import Check, Provisions
from ..model import Page
from .access import require
from .asking import Asking
from .audit import note
from .routing import Routes
from .views import JsonResponse, list_view

router = Routes(prefix="/provisioners", tags=["provisioners"])


@dataclass(frozen=True, slots=True)
class Trial:
    """``submit``: with a real job, of a minute at most."""

    submit: bool = False


@router.get("", response_model=Provisions, dependencies=[Depends(require("read"))])
async def list_provisioners(services: Asking) -> JsonResponse:
    """Every provisioner with its profiles, the machines it was asked for, and what last went wrong."""
    return JsonResponse(await services.machines.provisions())


@router.post("/{name}/test", response_model=Page[Check], dependencies=[Depends(require("provisioners"))])
async def try_provisioner(
    request: Request, name: str, services: Asking, how: Trial | None = None
) -> JsonResponse:
    """Try a provisioner up to a submission, or with one; each thing tried, and what came of it."""
    submit = (how or Trial()).submit
    note(request, submit=submit)
    return JsonResponse(list_view(await services.machines.test(name, submit)))
