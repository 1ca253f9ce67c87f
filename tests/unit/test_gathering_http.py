"""Files and large bodies over the server's own connections, spoken to byte by byte."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import psutil
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from farhand.gathering import RECEIVED_BYTES_MIN, GatheringProtocol
from farhand.receiving import BODY
from tests.harness.httpd import Http
from tests.harness.waiting import eventually

CONTENT = os.urandom(3_000_000)


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

    async def pour(request: Request) -> Response:
        body = request.scope["extensions"][BODY]
        came = bytearray()
        try:
            await body.pour(partial(keep, came), partial(verify, came))
        except OSError:
            return Response("full")
        return Response(hashlib.sha256(came).hexdigest())

    async def refuse(request: Request) -> Response:
        return Response("full")

    puts = {"/body": take, "/poured": pour, "/refused": refuse}
    routes = [Route("/file", send), *(Route(path, puts[path], methods=["PUT"]) for path in puts)]
    app = Starlette(routes=routes)
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


def keep(came: bytearray, more: Sequence[bytes]) -> None:
    """Nor for a second piece of what begins so."""
    if came.startswith(b"none"):
        raise OSError
    came += b"".join(more)


def verify(came: bytearray) -> None:
    """No disk has room for what begins with a word."""
    if came.startswith(b"full"):
        raise OSError


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


def put(path: str, content: bytes) -> bytes:
    return ask("PUT", path, Content_Length=len(content)) + content


@pytest.mark.parametrize("sent_at_once", [70_000, 3_000_000])
def test_a_large_body_is_poured_from_its_socket_and_the_connection_goes_on(
    connection: socket.socket, sent_at_once: int
) -> None:
    asked = put("/poured", CONTENT) * 2 + put("/body", b"abc") + ask(Range="bytes=5-9")
    for begin in range(0, len(asked), sent_at_once):
        connection.sendall(asked[begin : begin + sent_at_once])
    digest = hashlib.sha256(CONTENT).hexdigest().encode()
    assert answers(connection, 64, 64, 1, 5) == [digest, digest, b"3", CONTENT[5:10]]


def test_a_large_body_that_is_asked_to_be_announced_is_not_poured(connection: socket.socket) -> None:
    connection.sendall(ask("PUT", "/body", Content_Length=100_000, Expect="100-continue"))
    with connection.makefile("rb") as stream:
        assert stream.readline().split()[1] == b"100"
        assert stream.readline() == b"\r\n"
    connection.sendall(CONTENT[:100_000])
    assert answers(connection, 6) == [b"100000"]


@pytest.mark.parametrize(("path", "begin"), [("poured", b"full"), ("poured", b"none"), ("refused", b"full")])
def test_a_body_that_is_refused_leaves_the_connection_as_it_should_be(
    connection: socket.socket, path: str, begin: bytes
) -> None:
    connection.sendall(put(f"/{path}", begin + CONTENT[4:]) + ask(Range="bytes=5-9"))
    assert answers(connection, 4, 5) == [b"full", CONTENT[5:10]]


def test_a_poured_body_that_breaks_off_frees_the_connection(server: tuple[int, list[int]]) -> None:
    before = psutil.Process().num_fds()
    with socket.create_connection(("127.0.0.1", server[0])) as leaving:
        leaving.sendall(ask("PUT", "/poured", Content_Length=1_000_000) + b"x" * 1000)
        leaving.shutdown(socket.SHUT_WR)
        assert leaving.recv(1000) == b""
    eventually(lambda: psutil.Process().num_fds() <= before, 10, "its descriptors are closed")


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
