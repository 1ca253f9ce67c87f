"""What a worker says when it cannot reach its server."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from farhand_worker import dial

pytestmark = pytest.mark.anyio


async def test_a_name_that_has_no_address_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_: Any, **__: Any) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
    with pytest.raises(OSError, match="no address") as raised:
        await dial._connect("flows.example.org", 443)
    assert dial._why(raised.value) == "no address of flows.example.org is found: Name or service not known"
