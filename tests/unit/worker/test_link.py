"""The websocket of a session: what is handed over at once, and what goes the library's own way, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from farhand_worker.link import Link

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def linked(sending: Callable[[ServerConnection], Any]) -> AsyncGenerator[Link]:
    """A link to a server that sends something and then waits for the end."""

    async def handler(session: ServerConnection) -> None:
        await sending(session)
        await session.wait_closed()

    async with serve(handler, "127.0.0.1", 0, compression=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with connect(
            f"ws://127.0.0.1:{port}", compression=None, proxy=None, create_connection=Link
        ) as link:
            assert isinstance(link, Link)
            yield link


class Heard:
    """What was handed over, and a way to wait for it."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._more = asyncio.Event()

    def take(self, text: str) -> None:
        self.texts.append(text)
        self._more.set()

    async def until(self, count: int) -> list[str]:
        while len(self.texts) < count:
            self._more.clear()
            await asyncio.wait_for(self._more.wait(), 10)
        return self.texts


async def test_texts_are_handed_over_in_their_order() -> None:
    go = asyncio.Event()

    async def sending(session: ServerConnection) -> None:
        await go.wait()
        for number in range(20):
            await session.send(f"text {number} é")

    async with linked(sending) as link:
        heard = Heard()
        link.listen(heard.take)
        go.set()
        assert await heard.until(20) == [f"text {number} é" for number in range(20)]


async def test_what_came_before_anybody_listened_is_received_and_not_overtaken() -> None:
    go, again = asyncio.Event(), asyncio.Event()

    async def sending(session: ServerConnection) -> None:
        await session.send("first")
        await session.send("second")
        await go.wait()
        await session.send("third")
        await again.wait()
        await session.send("fourth")

    async with linked(sending) as link:
        heard = Heard()
        assert await link.recv() == "first"
        link.listen(heard.take)
        link.received()
        assert await link.recv() == "second"
        go.set()
        assert await link.recv() == "third", "the second is not dealt with"
        link.received()
        link.received()
        again.set()
        assert await heard.until(1) == ["fourth"]


async def test_a_message_in_parts_and_bytes_are_received_and_what_follows_waits_for_them() -> None:
    go = asyncio.Event()

    async def sending(session: ServerConnection) -> None:
        await session.send(["in ", "parts"])
        await session.send(b"bytes")
        await session.send("after")
        await go.wait()
        await session.send("later")

    async with linked(sending) as link:
        heard = Heard()
        link.listen(heard.take)
        for message in ("in parts", b"bytes", "after"):
            assert await link.recv() == message
        for _ in range(3):
            link.received()
        assert heard.texts == []
        go.set()
        assert await heard.until(1) == ["later"]


async def nothing(session: ServerConnection) -> None:
    """Send nothing."""


def _frames(*frames: tuple[Opcode, bytes, bool]) -> bytes:
    return b"".join(Frame(opcode, content, fin).serialize(mask=False) for opcode, content, fin in frames)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 131, 4096, 1 << 20])
async def test_however_the_bytes_come_nothing_is_lost_or_overtaken(size: int) -> None:
    texts = ["a", "", "é" * 62, "b" * 125, "c" * 126, "d" * 70_000, "e"]
    content = _frames(*[(Opcode.TEXT, text.encode(), True) for text in texts])
    content += _frames((Opcode.PING, b"", True), (Opcode.TEXT, b"f", True))
    content += _frames((Opcode.TEXT, b"in ", False), (Opcode.PONG, b"", True), (Opcode.CONT, b"parts", True))
    content += _frames((Opcode.TEXT, b"g", True))

    async with linked(nothing) as link:
        heard = Heard()
        link.listen(heard.take)
        for begin in range(0, len(content), size):
            link.data_received(content[begin : begin + size])
        assert heard.texts == [*texts, "f"]
        assert [await link.recv(), await link.recv()] == ["in parts", "g"]
        for _ in range(2):
            link.received()
        link.data_received(_frames((Opcode.TEXT, b"h", True)))
        assert heard.texts[-1] == "h"


async def test_whoever_stops_listening_at_a_text_is_handed_no_other() -> None:
    async with linked(nothing) as link:
        taken: list[str] = []

        def take(text: str) -> None:
            taken.append(text)
            link.listen(None)

        link.listen(take)
        link.data_received(_frames((Opcode.TEXT, b"one", True), (Opcode.TEXT, b"two", True)))
        assert taken == ["one"]
        assert await link.recv() == "two"


async def test_whole_texts_are_taken_off_before_the_library_sees_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with linked(nothing) as link:
        heard = Heard()
        link.listen(heard.take)
        seen: list[bytes] = []
        monkeypatch.setattr(link.protocol, "receive_data", seen.append)
        link.data_received(_frames((Opcode.TEXT, b"one", True), (Opcode.TEXT, b"t" * 1000, True)))
        monkeypatch.undo()
        assert (heard.texts, seen) == (["one", "t" * 1000], [])


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 200_000])
async def test_what_is_said_arrives_as_it_was(size: int) -> None:
    got: asyncio.Queue[Any] = asyncio.Queue()

    async def sending(session: ServerConnection) -> None:
        async for text in session:
            got.put_nowait(text)

    async with linked(sending) as link:
        for text in ("x" * size, "and é"):
            assert link.say(text)
            assert await asyncio.wait_for(got.get(), 10) == text


async def test_a_text_that_is_no_text_ends_the_connection() -> None:
    async def sending(session: ServerConnection) -> None:
        await session.send(b"\xff\xfe", text=True)

    async with linked(sending) as link:
        heard = Heard()
        link.listen(heard.take)
        with pytest.raises(ConnectionClosed):
            await link.recv()
        assert heard.texts == []


async def test_what_is_said_goes_at_once_until_the_connection_closes() -> None:
    came: asyncio.Queue[Any] = asyncio.Queue()

    async def sending(session: ServerConnection) -> None:
        async for message in session:
            came.put_nowait(message)

    async with linked(sending) as link:
        assert link.say("é")
        assert await asyncio.wait_for(came.get(), 10) == "é"
        await link.close()
        assert not link.say("too late")
