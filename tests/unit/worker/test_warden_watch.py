"""A warden that does not answer is killed, unless it is its agent that stood still."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from farhand_worker.warden_link import WardenLink

pytestmark = pytest.mark.anyio
MARGIN_S = 0.2


class FakeWarden:
    """The other end: it answers when it is told to, and is told that it was killed."""

    pid = 1

    def __init__(self) -> None:
        self.socket, self._there = socket.socketpair()
        self.killed = False

    def answers(self, number: int) -> None:
        self._there.send(json.dumps({"is": "pong", "n": number}).encode() + b"\n")

    def kill(self) -> None:
        self.killed = True

    def close(self) -> None:
        self.socket.close()
        self._there.close()


@pytest.fixture
def warden() -> Iterator[FakeWarden]:
    warden = FakeWarden()
    yield warden
    warden.close()


def _stand_still() -> None:
    """As everything on a machine does that gets no processor."""
    time.sleep(2 * MARGIN_S)


async def _linked(warden: Any, ended: asyncio.Future[str]) -> WardenLink:
    link = WardenLink(warden, lambda _: None, ended.set_result)
    link.margin_s = MARGIN_S
    return link


async def test_a_warden_that_does_not_answer_is_killed(warden: FakeWarden) -> None:
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    link = await _linked(warden, ended)
    for number in (1, 2):
        link.deadlines(1.0, 1.0)
        warden.answers(number)
    link.deadlines(1.0, 1.0)
    assert await asyncio.wait_for(ended, 10) == "the warden did not answer"
    assert warden.killed


async def test_time_in_which_the_agent_itself_stood_still_is_not_held_against_its_warden(
    warden: FakeWarden,
) -> None:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[str] = loop.create_future()
    link = await _linked(warden, ended)
    link.deadlines(1.0, 1.0)
    _stand_still()
    loop.call_later(MARGIN_S / 8, warden.answers, 1)  # what the warden comes to when it goes on
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(asyncio.shield(ended), 2 * MARGIN_S)
    assert not warden.killed
    link.close()
