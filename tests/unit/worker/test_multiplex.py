"""Many connections over one: each is whole, and none holds up another."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from farhand_worker.multiplex import CREDIT, MARK, WINDOW_BYTES, Broken, Multiplex, Stream, join

pytestmark = pytest.mark.anyio
Serve = Callable[[Stream], Awaitable[None]]


@asynccontextmanager
async def joined(serve: Serve, noise: bytes = b"") -> AsyncIterator[Multiplex]:
    """The end that opens streams; ``serve`` gets them at the other."""
    one, two = socket.socketpair()
    here, there = await asyncio.open_connection(sock=one), await asyncio.open_connection(sock=two)
    opening, serving = Multiplex(*here), Multiplex(*there, serve)
    here[1].write(noise)
    await opening.greet(b"{}")
    assert await serving.greeted() == b"{}"
    runs = [asyncio.create_task(end.run()) for end in (opening, serving)]
    try:
        yield opening
    finally:
        here[1].close()
        found = await asyncio.gather(*runs, return_exceptions=True)
        there[1].close()
        assert all(isinstance(error, Broken) for error in found), found


async def echo(stream: Stream) -> None:
    while data := await stream.read():
        await stream.write(data)
    await stream.end()


async def test_what_is_written_arrives_whole_on_each_of_many_streams() -> None:
    async with joined(echo, b"Welcome to HPC\nfarhand-relay\n") as opening:

        async def talk(number: int) -> bool:
            stream, said = await opening.open(), bytes([number]) * 200_000
            await stream.write(said)
            heard = b""
            while len(heard) < len(said):
                heard += await stream.read()
            await stream.end()
            return heard == said

        assert await asyncio.gather(*(talk(number) for number in range(20))) == [True] * 20


async def test_a_stream_that_nobody_reads_holds_up_no_other() -> None:
    stuck = asyncio.Event()

    async def serve(stream: Stream) -> None:
        if stream.number == 1:
            await stuck.wait()
        await echo(stream)

    async with joined(serve) as opening:
        first, second = await opening.open(), await opening.open()
        flood = asyncio.create_task(first.write(b"x" * 3 * WINDOW_BYTES))
        await second.write(b"hello")
        assert await second.read() == b"hello"
        assert not flood.done(), "no more than a window is under way"
        stuck.set()
        heard = 0
        while heard < 3 * WINDOW_BYTES:
            heard += len(await first.read())
        await flood


async def test_an_end_ends_the_other_side_after_all_that_was_sent() -> None:
    async def serve(stream: Stream) -> None:
        await stream.write(b"the last word")
        await stream.end()

    async with joined(serve) as opening:
        stream = await opening.open()
        assert await stream.read() == b"the last word"
        assert await stream.read() == b""
        with pytest.raises(Broken, match="ended this connection"):
            await stream.write(b"x")


async def test_the_end_of_the_whole_ends_every_stream() -> None:
    waiting: list[bytes] = []

    async def serve(stream: Stream) -> None:
        waiting.append(await stream.read())

    async with joined(serve) as opening:
        stream = await opening.open()
        reading = asyncio.create_task(stream.read())
        await asyncio.sleep(0)
    assert await reading == b""


@pytest.mark.parametrize("said", [b"", b"bash: farhand-worker: command not found\n", b"x" * 70_000])
async def test_what_is_no_relay_is_said_in_its_own_words(said: bytes) -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(said)
    reader.feed_eof()
    with pytest.raises(Broken) as raised:
        await Multiplex(reader, None).greeted()  # type: ignore[arg-type]
    assert said[:20].decode().strip() in str(raised.value) or len(said) > 300


@pytest.mark.parametrize("frame", [b"\xff" * 9, struct.pack(">BII", CREDIT, 1, 3) + b"odd"])
async def test_frames_that_are_none_end_it(frame: bytes) -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(MARK + frame)
    reader.feed_eof()
    with pytest.raises(Broken, match="no frame"):
        await Multiplex(reader, None).greeted()  # type: ignore[arg-type]


async def test_a_connection_is_carried_both_ways_until_either_end_closes() -> None:
    async with joined(echo) as opening:
        one, two = socket.socketpair()
        near, far = await asyncio.open_connection(sock=one), await asyncio.open_connection(sock=two)
        carrying = asyncio.create_task(join(await opening.open(), *near))
        far[1].write(b"ping")
        assert await far[0].readexactly(4) == b"ping"
        far[1].close()
        await far[1].wait_closed()
        await carrying
