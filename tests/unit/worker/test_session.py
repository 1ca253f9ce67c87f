"""What a session says, and when: at once where somebody waits for it, together where nobody does."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from farhand_worker.link import Link
from farhand_worker.protocol import BATCH_BYTES, Ack, Bye, Proceed, encode, encode_several
from farhand_worker.session import Session, SessionOver

pytestmark = pytest.mark.anyio


class FakeLink:
    """A connection that takes what is said, as long as it takes more."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.takes_more = True
        self.paused = False
        self.take: Callable[[str], None] | None = None

    def listen(self, take: Callable[[str], None] | None) -> None:
        self.take = take

    def say(self, text: str) -> bool:
        self.said.append(text)
        return True

    async def recv(self) -> str:
        return await asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        self.takes_more = False


class Running:
    """A session on its fake link, and the reports that it may take."""

    def __init__(self) -> None:
        self.link = FakeLink()
        self.reports: deque[str] = deque()
        self.received: list[Any] = []
        self.session = Session(
            cast(Link, self.link), 1000.0, self.next, self.received.append, list, True, self.together
        )
        self.task = asyncio.ensure_future(self.session.run())

    def together(self) -> None:
        """All that waited in one frame has been received."""
        self.received.append("together")

    def next(self) -> str | None:
        return self.reports.popleft() if self.reports else None

    async def settle(self) -> None:
        """Let everything run that can."""
        for _ in range(10):
            await asyncio.sleep(0)


@asynccontextmanager
async def running() -> AsyncGenerator[Running]:
    it = Running()
    await it.settle()
    it.link.said.clear()  # the first heartbeat
    yield it
    it.task.cancel()
    await asyncio.gather(it.task, return_exceptions=True)


async def test_what_somebody_waits_for_is_said_before_anything_else_runs() -> None:
    async with running() as it:
        it.reports.append("a report")
        it.session.wake_now(it.next)
        assert it.link.said == ["a report"]
        await it.settle()
        assert it.link.said == ["a report"]


async def test_what_nobody_waits_for_is_said_together() -> None:
    async with running() as it:
        for text in ("1", "2"):
            it.reports.append(text)
            it.session.wake()
        assert it.link.said == []
        await it.settle()
        assert it.link.said == ['{"type":"several","messages":[1,2]}']


async def test_what_is_too_much_for_one_frame_is_said_in_several() -> None:
    async with running() as it:
        it.reports.extend(json.dumps("x" * (BATCH_BYTES // 2)) for _ in range(3))
        it.session.wake_now(it.next)
        assert [len(json.loads(said)) for said in it.link.said] == [BATCH_BYTES // 2] * 3
        await it.settle()
        assert len(it.link.said) == 3


async def test_nothing_is_written_past_what_waits_to_go_out() -> None:
    async with running() as it:
        it.link.takes_more = False
        it.reports.append("a report")
        it.session.wake_now(it.next)
        assert it.link.said == []
        await it.settle()
        assert it.link.said == ["a report"], "by the one who waits for room"


async def test_a_report_that_cannot_be_read_ends_the_session_and_not_who_woke_it() -> None:
    async with running() as it:
        it.reports = cast(Any, {1})  # a set has no popleft
        it.session.wake_now(it.next)
        await it.settle()
        with pytest.raises(AttributeError):
            await it.task


async def test_what_is_recorded_is_noted_after_what_somebody_waits_for() -> None:
    ack, proceed = Ack(job="j", lease=1, source="engine", seq=2), Proceed("j", 1, 1)
    async with running() as it:
        assert it.link.take is not None
        it.link.take(encode_several([encode(ack), encode(proceed), encode(Ack(n=1))]))
        assert it.received == [proceed, "together", ack, Ack(n=1)]


async def test_a_text_that_is_no_message_ends_the_session_and_the_next_is_not_read() -> None:
    async with running() as it:
        take = it.link.take
        assert take is not None
        take("no message")
        take('{"type":"ack","n":1}')
        await it.settle()
        assert it.received == ["together"]
        assert it.task.exception() is not None


async def test_after_a_goodbye_nothing_more_is_reported() -> None:
    async with running() as it:
        it.session.finish("done", Bye("done"))
        it.reports.append("a report")
        it.session.wake_now(it.next)
        assert it.link.said == []
        it.session._patience_s = 0.0  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(SessionOver):
            await it.task
        assert it.link.said == ['{"reason":"done","type":"bye"}']
