"""Every fault is provoked in a deployment of its own, or on workers of its own of a server that goes on."""

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


@pytest.fixture(scope="module")
def _standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("standing")) as running:
        yield running


@pytest.fixture
def standing(_standing: Deployment) -> Iterator[Deployment]:
    """The module's one server, for tests that do nothing to the server itself; their workers end with them.

    A worker's name is another one in each test: a name belongs to its first machine for as long as a lease.
    """
    yield _standing
    _standing.dismiss()
