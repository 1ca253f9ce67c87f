"""Websockets of the server itself, whose texts are taken as they arrive, spoken to by a real client."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from farhand.frames import EXTENSION, FrameProtocol


class Http(uvicorn.Server):
    """uvicorn that says when it is ready."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers what it takes at once with ``!``, and what it receives with ``?``; a text with an x is not
    taken, nor is anything before that has been received."""
    websocket = WebSocket(scope, receive, send)
    direct = scope["extensions"][EXTENSION]
    await websocket.accept()
    idle = True

    def take(text: str) -> bool:
        if not idle or "x" in text:
            return False
        assert direct.ready
        direct.write(f"!{text}")
        return True

    direct.take_by(take)
    while True:
        try:
            text = await websocket.receive_text()
        except WebSocketDisconnect:
            assert not direct.ready
            return
        idle = False
        await websocket.send_text(f"?{text}")
        idle = True


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        echo,
        ws=FrameProtocol,
        log_config=None,
        lifespan="off",
        ws_per_message_deflate=False,
        ws_max_size=10_000,
    )
    http = Http(config)
    thread = threading.Thread(target=http.run, args=([listener],))
    thread.start()
    assert http.ready.wait(10)
    yield listener.getsockname()[1]
    http.should_exit = True
    thread.join()
    listener.close()


@pytest.fixture
def connection(port: int) -> Iterator[ClientConnection]:
    with connect(f"ws://127.0.0.1:{port}", compression=None) as connected:
        yield connected


def test_texts_are_taken_as_they_arrive_and_else_received_in_their_order(
    connection: ClientConnection,
) -> None:
    said = ["a", "b", "x1", "c", "x2", "x3", "d", "é"]
    for text in said:
        connection.send(text)
    heard = [str(connection.recv(timeout=5)) for _ in said]
    assert [text[1:] for text in heard] == said
    assert {text[0] for text in heard if "x" in text} == {"?"}
    assert heard[:2] == ["!a", "!b"]


def test_a_text_in_pieces_is_received(connection: ClientConnection) -> None:
    connection.send(["one ", "text ", "in pieces"])
    assert connection.recv(timeout=5) == "?one text in pieces"
    connection.send("a")
    assert connection.recv(timeout=5) == "!a"


@pytest.mark.parametrize(("content", "code"), [(b"\xff\xfe", 1007), (b"a" * 10_001, 1009)])
def test_what_is_no_text_or_too_large_ends_the_connection(
    connection: ClientConnection, content: bytes, code: int
) -> None:
    connection.send(content, text=True)
    with pytest.raises(ConnectionClosed) as closed:
        connection.recv(timeout=5)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == code
