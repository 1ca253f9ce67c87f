"""Files go out within the kernel, however slowly they are read, and never more or less than was promised."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from farhand import sendfile
from farhand.sendfile import Shortened, send_file

pytestmark = pytest.mark.anyio

CONTENT = os.urandom(3_000_000)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    with ours, theirs:
        yield ours, theirs


async def read(sock: socket.socket, count: int) -> bytes:
    loop = asyncio.get_running_loop()
    received = bytearray()
    while len(received) < count and (chunk := await loop.sock_recv(sock, 30_000)):
        received += chunk
    return bytes(received)


@pytest.mark.parametrize("turn", [64 * 1024, 16 * 1024 * 1024])
async def test_one_who_reads_in_small_pieces_gets_it_whole(
    file: Path, ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch, turn: int
) -> None:
    monkeypatch.setattr(sendfile, "TURN_BYTES_MAX", turn)
    sending = asyncio.ensure_future(send_file(file, len(CONTENT), ends[0].fileno()))
    assert await read(ends[1], len(CONTENT)) == CONTENT
    await sending


async def test_no_more_is_sent_than_was_promised(
    file: Path, ends: tuple[socket.socket, socket.socket]
) -> None:
    await send_file(file, 10, ends[0].fileno())
    ends[0].close()
    assert await read(ends[1], 100) == CONTENT[:10]


async def test_a_file_that_is_shorter_than_promised_is_said(
    tmp_path: Path, ends: tuple[socket.socket, socket.socket]
) -> None:
    (tmp_path / "short").write_bytes(b"ten bytes.")
    with pytest.raises(Shortened):
        await send_file(tmp_path / "short", 11, ends[0].fileno())


async def test_one_who_goes_away_in_the_middle_ends_it(
    file: Path, ends: tuple[socket.socket, socket.socket]
) -> None:
    sending = asyncio.ensure_future(send_file(file, len(CONTENT), ends[0].fileno()))
    await read(ends[1], 100_000)
    ends[1].close()
    with pytest.raises(ConnectionError):
        await sending


async def test_a_connection_that_is_closed_here_meanwhile_disturbs_no_other(
    file: Path, ends: tuple[socket.socket, socket.socket]
) -> None:
    sending = asyncio.ensure_future(send_file(file, len(CONTENT), ends[0].fileno()))
    begin = await read(ends[1], 100_000)
    ends[0].close()
    assert begin + await read(ends[1], len(CONTENT) - len(begin)) == CONTENT
    await sending
