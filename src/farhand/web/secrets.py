"""Secrets: set, listed by name, deleted. No route returns a value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends

from ..engine.roles import Identity
from ..model import Page, Secret
from .access import require
from .answers import WasDeleted, WasSet
from .asking import Asking
from .routing import Routes
from .views import JsonResponse, list_view

router = Routes(prefix="/secrets", tags=["secrets"])


@dataclass(frozen=True, slots=True)
class NewSecret:
    """A secret's value."""

    value: str = field(repr=False)


@router.get("", response_model=Page[Secret], dependencies=[Depends(require("secrets_list"))])
async def list_secrets(services: Asking) -> JsonResponse:
    """Every secret by name, and when it was set and last read; never a value."""
    return JsonResponse(list_view(await services.secrets.list()))


@router.put("/{name}", response_model=WasSet)
async def set_secret(
    name: str, new: NewSecret, services: Asking, who: Annotated[Identity, Depends(require("secrets"))]
) -> JsonResponse:
    """Keep a value, sealed, under a name; jobs that declare it get it from then on."""
    created = await services.secrets.set(name, new.value, who.name)
    return JsonResponse(WasSet(name, created))


@router.delete("/{name}", response_model=WasDeleted, dependencies=[Depends(require("secrets"))])
async def delete_secret(name: str, services: Asking) -> JsonResponse:
    """Forget a secret."""
    await services.secrets.delete(name)
    return JsonResponse(WasDeleted(name, True))
