"""Flavors: named sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends

from ..engine.roles import Identity
from ..model import Flavor, Page
from .access import require
from .answers import WasDeleted, WasSet
from .asking import Asking
from .routing import Routes
from .views import JsonResponse, list_view

router = Routes(prefix="/flavors", tags=["flavors"])


@dataclass(frozen=True, slots=True)
class Size:
    """A flavor's amounts: ``ram`` in megabytes, or text such as "64G". What is left out is not asked for."""

    cpus: int | None = None
    gpus: int | None = None
    ram: int | str | None = None


@router.get("", response_model=Page[Flavor], dependencies=[Depends(require("read"))])
async def list_flavors(services: Asking) -> JsonResponse:
    """Every flavor by name."""
    return JsonResponse(list_view(await services.flavors.list()))


@router.put("/{name}", response_model=WasSet)
async def set_flavor(
    name: str, size: Size, services: Asking, who: Annotated[Identity, Depends(require("flavors"))]
) -> JsonResponse:
    """Keep a size under a name; what is started from then on that asks for it has it."""
    created = await services.flavors.set(name, size.cpus, size.gpus, size.ram, who.name)
    return JsonResponse(WasSet(name, created))


@router.delete("/{name}", response_model=WasDeleted, dependencies=[Depends(require("flavors"))])
async def delete_flavor(name: str, services: Asking) -> JsonResponse:
    """Forget a flavor; what asks for it can no longer be started."""
    await services.flavors.delete(name)
    return JsonResponse(WasDeleted(name, True))
