"""Services on a worker: what a command becomes, who listens on a port, and how health is told apart."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from farhand_worker.hosting import filled, variable_of
from farhand_worker.listening import Listener, Place, choose, is_free, is_still, parse, place_of, until_free
from farhand_worker.probing import unwell

pytestmark = pytest.mark.anyio
ODD = "\"'\n$(touch /tmp/x) `id` ;" + "x" * 300


def test_names_are_replaced_inside_of_words_and_nothing_else_is_touched() -> None:
    known = {"port": "8000", "weights": "/cache/ab", "code": "/code"}
    assert filled("--listen=0.0.0.0:{port}", known) == "--listen=0.0.0.0:8000"
    assert filled("{weights}:{code}", known) == "/cache/ab:/code"
    assert filled('{"a": {port}, "b": {other}}', known) == '{"a": 8000, "b": {other}}'
    assert filled(ODD, known) == ODD
    assert filled("{port}", {**known, "port": "{weights}"}) == "{weights}", "what was put in is left alone"


def test_a_secret_is_in_a_variable_of_its_name() -> None:
    assert variable_of("hf-token") == "HF_TOKEN"


TCP = """\
sl local_address rem_address st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode
0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000 1000 0 111 1 0 100 0 0 10 0
1: 0100007F:1F40 0100007F:D2F0 01 00000000:00000000 00:00000000 00000000 1000 0 222 1 0 100 0 0 10 0
2: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 333 1 0 100 0 0 10 0
"""


@pytest.mark.skipif(sys.byteorder != "little", reason="the table is that of a little-endian machine")
def test_listeners_are_read_from_the_table_and_connections_are_not() -> None:
    assert parse(TCP, socket.AF_INET, 8000) == [Listener("127.0.0.1", 8000, 111)]
    assert parse(TCP, socket.AF_INET, 80) == [Listener("0.0.0.0", 80, 333)]
    assert parse(TCP, socket.AF_INET, 81) == []


MINE, OTHER = Listener("127.0.0.1", 8000, 1), Listener("127.0.0.2", 8000, 2)


@pytest.mark.parametrize(
    ("found", "own", "place"),
    [
        ([], {1}, Place(None)),
        ([MINE], {1}, Place("127.0.0.1", inode=1)),
        ([MINE], set[int](), Place(None, True)),
        ([OTHER, MINE], {1}, Place("127.0.0.1", inode=1)),
        ([MINE._replace(host="0.0.0.0")], {1}, Place("127.0.0.1", inode=1)),
        ([MINE._replace(host="::")], {1}, Place("::1", inode=1)),
        ([MINE, MINE._replace(inode=2)], {1}, Place(None, True)),
        ([MINE._replace(host="0.0.0.0"), MINE._replace(inode=2)], {1}, Place(None, True)),
    ],
)
def test_only_a_socket_of_its_own_that_no_other_shares_is_the_services(
    found: list[Listener], own: set[int], place: Place
) -> None:
    assert choose(found, own) == place


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_process_has_the_ports_that_its_children_listen_on_and_no_other() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert not is_free(port)
        place = place_of(os.getpid(), port)
        assert place == Place("127.0.0.1", inode=os.fstat(listener.fileno()).st_ino)
        assert is_still(place, port)
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        try:
            assert place_of(child.pid, port) == Place(None, True, os.getpid())
        finally:
            child.communicate(b"\n")
    assert is_free(port)
    with socket.create_server(("127.0.0.1", port)):
        assert not is_still(place, port), "it is another's now"
    assert place_of(os.getpid(), port) == Place(None)


@asynccontextmanager
async def answering(answer: bytes | None) -> AsyncIterator[int]:
    """A server that answers so, or never."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if answer is None:
            await reader.read()
        else:
            writer.write(answer)
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


@pytest.mark.parametrize(
    ("answer", "reason", "words"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", None, ""),
        (b"HTTP/1.1 503 No\r\n\r\n", "health_status", "/health answered 503"),
        (b"HTTP/1.1 301 Moved\r\n\r\n", "health_status", "/health answered 301"),
        (b"SSH-2.0-x\r\n", "health_status", "/health answered what is no HTTP"),
        (b"", "health_status", "/health answered what is no HTTP"),
        (None, "health_timeout", "/health did not answer within 0.1 s"),
    ],
)
async def test_what_is_not_a_200_is_told_apart(answer: bytes | None, reason: str | None, words: str) -> None:
    """B039: too slow, not 200 and no HTTP at all are reasons of their own."""
    async with answering(answer) as port:
        found = await unwell("127.0.0.1", port, "/health", 0.1 if answer is None else 5)
    assert (None if found is None else found.reason) == reason
    assert found is None or found.message == words


async def test_a_port_that_nobody_has_refuses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    found = await unwell("127.0.0.1", port, "/health", 5)
    assert found is not None
    assert found.reason == "health_refused"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
async def test_a_start_waits_for_its_port_to_be_let_go_of_and_not_for_ever() -> None:
    """B039: a start that finds the port still held by the one before it would be taken for a failed one."""
    with socket.create_server(("127.0.0.1", 0)) as before:
        port = before.getsockname()[1]
        waiting = asyncio.ensure_future(until_free(port, 3600))
        await until_free(port, 0.2)
        assert not waiting.done()
    await asyncio.wait_for(waiting, 10)
