"""The API described: the OpenAPI document, made when somebody first asks for it."""

from __future__ import annotations

import asyncio

from fastapi import Request

from .routing import Routes
from .views import JsonResponse

router = Routes(described=False)


@router.get("/openapi.json")
async def openapi_document(request: Request) -> JsonResponse:
    """Every route with its parameters and answers. Making it takes a while, in which the loop goes on."""
    return JsonResponse(await asyncio.to_thread(request.app.openapi))
