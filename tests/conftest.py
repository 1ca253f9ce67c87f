"""Fixtures every suite shares."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """The product runs on asyncio alone."""
    return "asyncio"
