"""Files and large bodies over the server's own connections, spoken to byte by byte."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from farhand.gathering import RECEIVED_BYTES_MIN, GatheringProtocol
from tests.harness.waiting import eventually

CONTENT = os.urandom(3_000_000)


class Http(uvicorn.Server):
    """uvicorn that says when it is ready."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, list[int]]]:
    """Serves a file, takes bodies, and notes how many pieces each came in; its port, and those numbers."""
    path = tmp_path_factory.mktemp("files") / "file"
    path.write_bytes(CONTENT)
    pieces: list[int] = []

    async def send(request: Request) -> Response:
        return FileResponse(path)

    async def take(request: Request) -> Response:
        came = [chunk async for chunk in request.stream() if chunk]
        pieces.append(len(came))
        return Response(str(sum(map(len, came))))

    app = Starlette(routes=[Route("/file", send), Route("/body", take, methods=["PUT"])])
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, http=GatheringProtocol, log_config=None, lifespan="off", access_log=False)
    http = Http(config)
    thread = threading.Thread(target=http.run, args=([listener],))
    thread.start()
    assert http.ready.wait(10)
    yield listener.getsockname()[1], pieces
    http.should_exit = True
    thread.join()
    listener.close()


@pytest.fixture
def connection(server: tuple[int, list[int]]) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server[0])) as connected:
        yield connected


def ask(method: str = "GET", path: str = "/file", **headers: Any) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n{lines}\r\n".encode()


def answers(connection: socket.socket, *sizes: int) -> list[bytes]:
    """The bodies of answers of these sizes."""
    with connection.makefile("rb") as stream:
        found: list[bytes] = []
        for size in sizes:
            assert stream.readline().split()[1].startswith(b"2")
            while stream.readline() != b"\r\n":
                pass
            found.append(stream.read(size))
        return found


def test_a_file_is_sent_whole_and_the_connection_goes_on(connection: socket.socket) -> None:
    for _ in range(2):
        connection.sendall(ask())
        assert answers(connection, len(CONTENT)) == [CONTENT]


def test_files_asked_for_ahead_come_in_their_order(connection: socket.socket) -> None:
    connection.sendall(ask() + ask("HEAD") + ask(Range="bytes=5-9") + ask())
    size = len(CONTENT)
    assert answers(connection, size, 0, 5, size) == [CONTENT, b"", CONTENT[5:10], CONTENT]


def test_one_who_goes_away_leaves_no_file_open(server: tuple[int, list[int]]) -> None:
    before = psutil.Process().num_fds()
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", server[0])) as leaving:
            leaving.sendall(ask())
            assert leaving.recv(1000)
    eventually(lambda: psutil.Process().num_fds() <= before, 10, "all of them are closed")


def test_a_large_body_is_taken_in_large_pieces(
    server: tuple[int, list[int]], connection: socket.socket
) -> None:
    connection.sendall(ask("PUT", "/body", Content_Length=len(CONTENT)) + CONTENT)
    assert answers(connection, 7) == [b"3000000"]
    assert server[1][-1] <= len(CONTENT) // RECEIVED_BYTES_MIN + 3
    connection.sendall(ask("PUT", "/body", Content_Length=3) + b"abc")
    assert answers(connection, 1) == [b"3"]


def test_a_body_that_comes_byte_by_byte_arrives_all_the_same(connection: socket.socket) -> None:
    connection.sendall(ask("PUT", "/body", Content_Length=5))
    for byte in b"bytes":
        connection.sendall(bytes([byte]))
    assert answers(connection, 1) == [b"5"]


def test_a_body_that_breaks_off_frees_the_connection(server: tuple[int, list[int]]) -> None:
    with socket.create_connection(("127.0.0.1", server[0])) as leaving:
        leaving.sendall(ask("PUT", "/body", Content_Length=1_000_000) + b"x" * 1000)
        leaving.shutdown(socket.SHUT_WR)
        assert leaving.recv(1000) == b""
