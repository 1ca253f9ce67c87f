"""How a route gets at the services."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from ..engine.services import Services


async def services_of(request: Request) -> Services:
    """The services of the application that serves ``request``."""
    return request.app.state.services


Asking = Annotated[Services, Depends(services_of)]
"""The type of a route's ``services`` parameter."""
