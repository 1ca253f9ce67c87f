"""Every fault is provoked in a deployment of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.deployment import Deployment, deployed


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    """A running server with its local worker, on a clockwork of a tenth of the defaults."""
    with deployed(tmp_path) as running:
        yield running
