"""A websocket to a service: what comes at the same moment as the answer to its handshake."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from anyio import fail_after
from starlette.websockets import WebSocket
from websockets.http11 import Request
from websockets.server import ServerProtocol

from farhand.web.forwarding import Visit
from farhand.web.upgrade import carry

pytestmark = pytest.mark.anyio

VISIT = Visit("/services/talk", "", "http", "here", by_token=True)


class AtOnce:
    """A service that answers the handshake, speaks and closes in one piece."""

    closed = False

    def __init__(self) -> None:
        self._protocol = ServerProtocol()
        self._said: asyncio.Queue[bytes] = asyncio.Queue()

    async def send(self, data: bytes) -> None:
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Request):
                self._protocol.send_response(self._protocol.accept(event))
                self._protocol.send_text(b"first")
                self._protocol.send_close(4001, "as told")
                self._said.put_nowait(b"".join(self._protocol.data_to_send()))

    async def receive(self) -> bytes:
        return await self._said.get()

    def close(self) -> None:
        self.closed = True


class Mute(AtOnce):
    """A service that never answers."""

    async def receive(self) -> bytes:
        return await asyncio.get_running_loop().create_future()


async def test_a_handshake_that_is_never_answered_is_given_up() -> None:
    service, asked = Mute(), asyncio.Queue[Any]()
    scope = {"type": "websocket", "headers": [], "subprotocols": [], "path": "/"}
    with fail_after(10), pytest.raises(TimeoutError):
        await carry(service, WebSocket(scope, asked.get, asked.put), b"/", VISIT, answer_s=0.05)
    assert service.closed


async def test_a_message_that_comes_with_the_answer_to_the_handshake_is_passed_on() -> None:
    sent: list[Any] = []
    asked = asyncio.Queue[Any]()
    asked.put_nowait({"type": "websocket.connect"})

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "websocket", "headers": [], "subprotocols": [], "path": "/"}
    with fail_after(10):
        await carry(AtOnce(), WebSocket(scope, asked.get, send), b"/", VISIT)
    assert [message["type"] for message in sent] == ["websocket.accept", "websocket.send", "websocket.close"]
    assert sent[1]["text"] == "first"
    assert (sent[2]["code"], sent[2]["reason"]) == (4001, "as told")
