"""A real store under the gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from farhand.store import Store
from tests.unit.engine.world import a_store


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with a_store(tmp_path) as store:
        yield store
