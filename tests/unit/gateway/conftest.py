"""A real store under the gateway, and a gateway whose websockets are in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from farhand.store import Store
from tests.unit.engine.world import World, a_store
from tests.unit.gateway.gateways import Gateway, a_gateway


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with a_store(tmp_path) as store:
        yield store


@pytest.fixture
async def world(store: Store) -> World:
    return World(store)


@pytest.fixture(params=[True, False], ids=["direct", "received"])
async def gateway(world: World, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Gateway]:
    """Whose websockets are read and written directly, or by ASGI alone."""
    async with a_gateway(world, tmp_path) as gateway:
        gateway.direct = request.param
        yield gateway
