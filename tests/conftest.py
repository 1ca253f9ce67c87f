"""Fixtures every suite shares."""

from __future__ import annotations

import os
import sys

import pytest

# The tests start hundreds of interpreters: what they import is compiled once, as whatever pip installs is.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


@pytest.fixture
def anyio_backend() -> str:
    """The product runs on asyncio alone."""
    return "asyncio"
