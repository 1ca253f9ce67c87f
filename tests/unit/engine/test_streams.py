"""What is answered to who reads along, and when."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from farhand.engine.bus import Bus, Notice
from farhand.engine.fleet import Fleet
from farhand.engine.service import Wakeup
from farhand.engine.streams import AGAIN, NEVER, Asked, Streams, answer
from farhand.store import Store
from farhand.store.streams import StreamPage
from farhand_worker import protocol

VALUES = ({"enc": "json", "text": "1"}, {"enc": "json", "text": "2"})


def page(state: str = "open", total: int = 2, last: int = 2, *values: Any, tries: int = 1) -> StreamPage:
    return StreamPage(tries, state, "no luck" if state == "broken" else "", total, last, values)


@pytest.mark.parametrize(
    ("asked", "found", "said"),
    [
        ({}, None, {"state": "broken", "message": NEVER}),
        ({}, page("open", 2, 2, *VALUES), {"tries": 1, "state": "open", "last": 2, "values": list(VALUES)}),
        ({"after": 2}, page("open", 2, 2), None),
        ({"after": 2}, page("ended", 2, 2), {"tries": 1, "state": "ended", "last": 2, "values": []}),
        ({}, page("ended", 2, 2, *VALUES), {"tries": 1, "state": "ended", "last": 2, "values": list(VALUES)}),
        ({}, page("ended", 9, 2, *VALUES), {"tries": 1, "state": "open", "last": 2, "values": list(VALUES)}),
        ({}, page("broken", 2, 2, *VALUES), {"state": "broken", "message": "no luck"}),
        ({"tries": 1}, page("open", 2, 2, *VALUES, tries=2), {"state": "broken", "message": AGAIN}),
        ({"tries": 2, "after": 2}, page("open", 2, 2, tries=2), None),
        ({"ready": True}, None, None),
        ({"ready": True}, page("open", 0, 0), None),
        ({"ready": True}, page("open", 1, 1), {"state": "open"}),
        ({"ready": True}, page("ended", 0, 0), {"state": "open"}),
        ({"ready": True}, page("broken", 1, 1), None),
    ],
)
def test_an_answer_comes_once_there_is_something_to_say(
    asked: dict[str, Any], found: StreamPage | None, said: dict[str, Any] | None
) -> None:
    assert answer(Asked.read({"key": "k", "name": "loss", **asked}), found) == said


@pytest.mark.parametrize("args", [{}, {"key": "k"}, {"key": "k", "name": "n", "after": "x"}])
def test_a_question_that_is_none_is_refused(args: dict[str, Any]) -> None:
    with pytest.raises((KeyError, ValueError)):
        Asked.read(args)


class Pages:
    """A store whose one stream is what a test says."""

    def __init__(self) -> None:
        self.now: StreamPage | None = page("open", 0, 0)
        self.looks = 0
        self.streams = self.jobs = self

    async def page(self, *_: Any) -> StreamPage | None:
        self.looks += 1
        return self.now

    async def get(self, _: str) -> Any:
        return SimpleNamespace(run="r1")


async def turns() -> None:
    """Let everything that is ready go on."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.anyio
async def test_who_reads_along_looks_again_when_there_is_news_of_its_run() -> None:
    store, bus = Pages(), Bus()
    streams = Streams(cast("Store", store), bus, Fleet(protocol.Times()), Wakeup())
    reading = asyncio.create_task(streams.read("j", Asked("k", "loss"), 30))
    await turns()
    assert store.looks == 2
    bus.publish(Notice("logs", "r2"))
    await turns()
    assert store.looks == 2
    store.now = page("open", 2, 2, *VALUES)
    bus.publish(Notice("logs", "r1"))
    assert (await reading)["last"] == 2
    bus.publish(Notice("logs", "r1"))
    assert store.looks == 3


@pytest.mark.anyio
async def test_a_question_without_an_answer_is_to_be_asked_again() -> None:
    assert await Streams(cast("Store", Pages()), Bus(), Fleet(protocol.Times()), Wakeup()).read(
        "j", Asked("k", "loss"), 0.0
    ) == {"again": True}
