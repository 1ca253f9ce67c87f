"""One send for what a turn of the loop has to say, and no pause that ends before it began."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from farhand.gathering import BYTES_MAX, Gathering

pytestmark = pytest.mark.anyio


class Transport:
    """Notes what is asked of it."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def write(self, content: bytes) -> None:
        self.asked.append(content)

    def __getattr__(self, name: str) -> Any:
        return lambda: self.asked.append(name)


@pytest.fixture
def transport() -> Transport:
    return Transport()


@pytest.fixture
async def gathering(transport: Transport) -> Gathering:
    return Gathering(transport, asyncio.get_running_loop())


async def a_turn() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_what_is_written_in_one_turn_is_sent_at_its_end(
    gathering: Gathering, transport: Transport
) -> None:
    gathering.write(b"head ")
    gathering.write(b"body")
    assert transport.asked == []
    await a_turn()
    assert transport.asked == [b"head body"]
    gathering.write(b"more")
    await a_turn()
    assert transport.asked == [b"head body", b"more"]


async def test_much_is_not_held_back(gathering: Gathering, transport: Transport) -> None:
    gathering.write(b"x")
    gathering.write(b"y" * BYTES_MAX)
    assert transport.asked == [b"x" + b"y" * BYTES_MAX]
    await a_turn()
    assert len(transport.asked) == 1


async def test_a_websocket_has_each_of_its_frames_sent_at_once(
    gathering: Gathering, transport: Transport
) -> None:
    gathering.write(b"HTTP/1.1 101 ")
    gathering.hold_nothing_back()
    gathering.write(b"frame")
    assert transport.asked == [b"HTTP/1.1 101 ", b"frame"]


async def test_what_was_written_goes_out_before_the_end(gathering: Gathering, transport: Transport) -> None:
    gathering.write(b"goodbye")
    gathering.close()
    await a_turn()
    assert transport.asked == [b"goodbye", "close"]


async def test_an_abort_sends_nothing_more(gathering: Gathering, transport: Transport) -> None:
    gathering.write(b"too late")
    gathering.abort()
    await a_turn()
    assert transport.asked == ["abort"]


async def test_a_pause_that_ends_at_once_is_none(gathering: Gathering, transport: Transport) -> None:
    gathering.pause_reading()
    gathering.resume_reading()
    await a_turn()
    assert transport.asked == []


async def test_a_pause_that_stays_holds_the_other_side_up_until_it_ends(
    gathering: Gathering, transport: Transport
) -> None:
    gathering.pause_reading()
    await a_turn()
    assert transport.asked == ["pause_reading"]
    gathering.resume_reading()
    gathering.resume_reading()
    assert transport.asked == ["pause_reading", "resume_reading"]
