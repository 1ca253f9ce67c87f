"""Bodies come from their socket by threads, however slowly they are sent, and no more than was announced."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator, Sequence

import pytest

from farhand import receiving
from farhand.receiving import Cut, Reception

pytestmark = pytest.mark.anyio

CONTENT = os.urandom(1_000_000)


class Kept:
    """What was written, and whether that was all."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.ended = False
        self.threads: set[int] = set()

    def write(self, pieces: Sequence[bytes | memoryview]) -> None:
        self.threads.add(threading.get_ident())
        for piece in pieces:
            self.content += piece

    def end(self) -> None:
        self.threads.add(threading.get_ident())
        self.ended = True


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname())
        ours, _ = listener.accept()
        ours.setblocking(False)
        theirs.setblocking(False)
        with ours, theirs:
            yield ours, theirs


async def send(sock: socket.socket, content: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(sock, content)


@pytest.mark.parametrize("turn", [64 * 1024, 16 * 1024 * 1024])
async def test_a_body_is_written_whole_and_ended_once_beside_the_loop(
    kept: Kept, ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch, turn: int
) -> None:
    monkeypatch.setattr(receiving, "TURN_BYTES_MAX", turn)
    pouring = asyncio.ensure_future(
        Reception(ends[0], CONTENT[:10], len(CONTENT) - 10).pour(kept.write, kept.end)
    )
    await send(ends[1], CONTENT[10:])
    await pouring
    assert (bytes(kept.content), kept.ended) == (CONTENT, True)
    assert threading.get_ident() not in kept.threads


async def test_what_follows_a_body_is_left_to_others(
    kept: Kept, ends: tuple[socket.socket, socket.socket]
) -> None:
    await send(ends[1], b"0123456789next")
    await Reception(ends[0], b"", 10).pour(kept.write, kept.end)
    assert bytes(kept.content) == b"0123456789"
    assert ends[0].recv(100) == b"next"


async def test_one_who_sends_byte_by_byte_holds_no_thread(
    kept: Kept, ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = asyncio.Event()
    readable = Reception._readable  # pyright: ignore[reportPrivateUsage]

    async def waiting(reception: Reception) -> None:
        waited.set()
        await readable(reception)

    monkeypatch.setattr(Reception, "_readable", waiting)
    monkeypatch.setattr(receiving, "PIECE_BYTES", 1)
    reception = Reception(ends[0], b"", 5)
    pouring = asyncio.ensure_future(reception.pour(kept.write, kept.end))
    for byte in b"bytes":
        await waited.wait()
        waited.clear()
        await send(ends[1], bytes([byte]))
    await pouring
    assert bytes(kept.content) == b"bytes"


async def test_a_body_that_breaks_off_is_written_as_far_as_it_came_and_not_ended(
    kept: Kept, ends: tuple[socket.socket, socket.socket]
) -> None:
    await send(ends[1], CONTENT[:1000])
    ends[1].close()
    reception = Reception(ends[0], b"", len(CONTENT))
    with pytest.raises(Cut):
        await reception.pour(kept.write, kept.end)
    assert (bytes(kept.content), kept.ended) == (CONTENT[:1000], False)
    assert reception.left == len(CONTENT) - 1000


async def test_what_cannot_be_written_is_said_and_the_rest_stays(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    def full(pieces: Sequence[bytes | memoryview]) -> None:
        raise OSError("no space left on device")

    await send(ends[1], b"0123456789")
    reception = Reception(ends[0], b"01234", 10)
    with pytest.raises(OSError, match="no space"):
        await reception.pour(full, lambda: None)
    assert reception.left == 10


async def test_one_who_is_cancelled_leaves_no_thread_at_the_body(
    kept: Kept, ends: tuple[socket.socket, socket.socket]
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(pieces: Sequence[bytes | memoryview]) -> None:
        begun.set()
        go_on.wait()
        kept.write(pieces)

    pouring = asyncio.ensure_future(Reception(ends[0], b"first", 5).pour(slow, kept.end))
    await asyncio.to_thread(begun.wait)
    pouring.cancel()
    asyncio.get_running_loop().call_later(0, go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await pouring
    assert bytes(kept.content) == b"first"
