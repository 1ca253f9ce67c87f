"""What tests with hosts of their own share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.waiting import eventually
from tests.lab.netns import Network, network


@pytest.fixture
def net() -> Iterator[Network]:
    """Two hosts and a router between them, on which nothing is left running."""
    with network() as net:
        yield net
        eventually(lambda: not net.processes(), what="nothing is left on either host")
