"""Fixtures every suite shares."""

from __future__ import annotations

import os
import sys

import pytest

# Without compiled files each of the thousand processes that tests start would compile the product anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


@pytest.fixture
def anyio_backend() -> str:
    """The product runs on asyncio alone."""
    return "asyncio"
