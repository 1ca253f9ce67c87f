"""Variables: plain JSON values by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from fastapi import Depends

from ..engine.roles import Identity
from ..model import Page, Variable
from .access import require
from .answers import WasDeleted, WasSet
from .asking import Asking
from .routing import Routes
from .views import JsonResponse, list_view

router = Routes(prefix="/variables", tags=["variables"])


@dataclass(frozen=True, slots=True)
class NewValue:
    """A variable's value: anything that JSON can say."""

    value: Any


@dataclass(frozen=True, slots=True)
class VariableView:
    """A variable."""

    name: str
    value: Any
    updated_at: float
    updated_by: str


def _view(variable: Variable) -> VariableView:
    value = msgspec.Raw(variable.value.encode())
    return VariableView(variable.name, value, variable.updated_at, variable.updated_by)


@router.get("", response_model=Page[VariableView], dependencies=[Depends(require("read"))])
async def list_variables(services: Asking) -> JsonResponse:
    """Every variable by name, with its value."""
    return JsonResponse(list_view([_view(variable) for variable in await services.variables.list()]))


@router.get("/{name}", response_model=VariableView, dependencies=[Depends(require("read"))])
async def get_variable(name: str, services: Asking) -> JsonResponse:
    """One variable."""
    return JsonResponse(_view(await services.variables.get(name)))


@router.put("/{name}", response_model=WasSet)
async def set_variable(
    name: str, new: NewValue, services: Asking, who: Annotated[Identity, Depends(require("variables"))]
) -> JsonResponse:
    """Keep a value under a name; jobs that ask for it get it from then on."""
    created = await services.variables.set(name, new.value, who.name)
    return JsonResponse(WasSet(name, created))


@router.delete("/{name}", response_model=WasDeleted, dependencies=[Depends(require("variables"))])
async def delete_variable(name: str, services: Asking) -> JsonResponse:
    """Forget a variable."""
    await services.variables.delete(name)
    return JsonResponse(WasDeleted(name, True))
