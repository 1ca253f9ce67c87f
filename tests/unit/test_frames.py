"""Websockets of the server itself, whose texts are taken as they arrive, spoken to by a real client."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.sync.client import ClientConnection, connect

from farhand.frames import EXTENSION, FrameProtocol
from tests.harness.httpd import Http

BYTES_MAX = 70_000
HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


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
        ws_max_size=BYTES_MAX,
    )
    http = Http(config)
    thread = threading.Thread(target=http.run, args=([listener],))
    thread.start()
    assert http.ready.wait(10)
    yield listener.getsockname()[1]
    http.should_exit = True
    thread.join()
    listener.close()


@contextmanager
def spoken(port: int) -> Iterator[socket.socket]:
    """A connection on which every byte is ours, after the handshake."""
    with socket.create_connection(("127.0.0.1", port)) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.settimeout(5)
        raw.sendall(HANDSHAKE)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += raw.recv(1)
        yield raw


def masked(text: str) -> bytes:
    """A text as a client's frame."""
    return Frame(Opcode.TEXT, text.encode()).serialize(mask=True)


def said(raw: socket.socket) -> str:
    """The next text of the server, of less than 64 KiB."""
    head = exactly(raw, 2)
    size = head[1] if head[1] < 126 else int.from_bytes(exactly(raw, 2), "big")
    return exactly(raw, size).decode()


def exactly(raw: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        found += raw.recv(size - len(found))
    return found


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


@pytest.mark.parametrize("size", [0, 1, 125, 126, 5_000, 65_535, 65_536, BYTES_MAX])
def test_a_text_of_any_size_is_taken_whole_and_answered(connection: ClientConnection, size: int) -> None:
    connection.send("é" + "a" * (size - 2) if size > 1 else "a" * size)
    heard = str(connection.recv(timeout=5))
    assert heard[0] == "!"
    assert len(heard[1:].encode()) == size


def test_frames_are_told_apart_wherever_the_network_cuts_them(port: int) -> None:
    """Byte by byte, in one piece, and in pieces that end in the head of a frame."""
    texts = ["a", "b" * 200, "x", "c", "", "d" * 126]
    frames = b"".join(masked(text) for text in texts)
    for piece in (1, 2, 3, 7, 64, 201, len(frames)):
        with spoken(port) as raw:
            for start in range(0, len(frames), piece):
                raw.sendall(frames[start : start + piece])
            heard = [said(raw) for _ in texts]
        assert [text[1:] for text in heard] == texts, piece
        assert heard[2][0] == "?"


def test_a_ping_and_a_message_in_pieces_between_texts_are_the_librarys(connection: ClientConnection) -> None:
    connection.send("a")
    pong = connection.ping()
    connection.send(["b", "c"])
    connection.send("d")
    heard = [str(connection.recv(timeout=5)) for _ in range(3)]
    assert heard[:2] == ["!a", "?bc"]
    assert heard[2][1:] == "d"
    assert pong.wait(5)


def test_a_text_in_pieces_is_received(connection: ClientConnection) -> None:
    connection.send(["one ", "text ", "in pieces"])
    assert connection.recv(timeout=5) == "?one text in pieces"
    connection.send("a")
    assert connection.recv(timeout=5) == "!a"


@pytest.mark.parametrize(("content", "code"), [(b"\xff\xfe", 1007), (b"a" * (BYTES_MAX + 1), 1009)])
def test_what_is_no_text_or_too_large_ends_the_connection(
    connection: ClientConnection, content: bytes, code: int
) -> None:
    connection.send(content, text=True)
    with pytest.raises(ConnectionClosed) as closed:
        connection.recv(timeout=5)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == code
