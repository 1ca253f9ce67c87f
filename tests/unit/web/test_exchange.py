"""One exchange, and one websocket, with a service: what goes wrong in the middle of either."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, cast

import pytest
from starlette.websockets import WebSocket

from farhand.web.exchange import Exchange, Gone, NoAnswer, TooLate
from farhand.web.upgrade import _Both  # pyright: ignore[reportPrivateUsage]

pytestmark = pytest.mark.anyio
REFUSAL = b"HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\nConnection: close\r\n\r\nfull"


class Refusing:
    """A service that takes no body; ``says`` is what it has answered by then."""

    closed = False

    def __init__(self, says: bytes) -> None:
        self._says = deque([says] if says else [])
        self._sent = 0
        self._refused = asyncio.Event()

    async def send(self, data: bytes) -> None:
        self._sent += 1
        if self._sent > 1:
            self._refused.set()
            raise ConnectionError("the service has ended the connection")

    async def receive(self) -> bytes:
        await self._refused.wait()
        await asyncio.sleep(0)
        return self._says.popleft() if self._says else b""

    def close(self) -> None:
        """Nothing is open."""


async def _exchanged(says: bytes) -> list[Any]:
    answered: list[Any] = []
    body = deque([{"type": "http.request", "body": b"x" * 1000, "more_body": True}])

    async def receive() -> Any:
        if body:
            return body.popleft()
        return await asyncio.get_running_loop().create_future()

    async def send(message: Any) -> None:
        answered.append(message)

    exchange = Exchange(Refusing(says), receive, send, list)
    headers = [(b"host", b"service"), (b"transfer-encoding", b"chunked")]
    async with asyncio.timeout(5):
        assert await exchange.run("POST", b"/", headers) is False
    return answered


async def test_an_upload_that_is_refused_early_is_answered_by_what_the_service_said() -> None:
    start, *bodies = await _exchanged(REFUSAL)
    assert start["status"] == 413
    assert b"".join(message["body"] for message in bodies) == b"full"


async def test_an_upload_that_is_cut_without_an_answer_has_none() -> None:
    with pytest.raises(NoAnswer):
        await _exchanged(b"")


class Silent:
    """A service that takes what it is sent; ``says`` is what it answers once asked, if anything."""

    closed = False

    def __init__(self, *says: bytes) -> None:
        self._says = deque(says)
        self._over = asyncio.Event()

    async def send(self, data: bytes) -> None:
        """Taken."""

    async def receive(self) -> bytes:
        if not self._says:
            await self._over.wait()
        return self._says.popleft()

    def close(self) -> None:
        """Nothing is open."""


async def _asked(service: Silent, visitor: Any, answer_s: float) -> bool:
    async def send(message: Any) -> None:
        """Shown."""

    exchange = Exchange(service, visitor, send, list, answer_s)
    headers = [(b"host", b"service"), (b"transfer-encoding", b"chunked")]
    async with asyncio.timeout(5):
        return await exchange.run("POST", b"/", headers)


def _visitor(body: bytes, more: bool, leaves_after_s: float | None = None) -> Any:
    """Who says this of a question, and goes after a while, or stays."""
    said = deque([{"type": "http.request", "body": body, "more_body": more}])
    left = asyncio.Event()
    if leaves_after_s is not None:
        asyncio.get_running_loop().call_later(leaves_after_s, left.set)

    async def receive() -> Any:
        if said:
            return said.popleft()
        await left.wait()
        return {"type": "http.disconnect"}

    return receive


async def test_a_service_that_begins_no_answer_in_its_time_is_given_up() -> None:
    with pytest.raises(TooLate):
        await _asked(Silent(), _visitor(b"", more=False), 0.05)


async def test_the_time_that_a_visitor_takes_for_its_question_is_not_the_services() -> None:
    with pytest.raises(Gone):
        await _asked(Silent(), _visitor(b"x", more=True, leaves_after_s=0.3), 0.05)


async def test_an_answer_that_has_begun_may_take_as_long_as_it_wants() -> None:
    begun = Silent(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: first\n\n")
    with pytest.raises(Gone):
        await _asked(begun, _visitor(b"", more=False, leaves_after_s=0.3), 0.05)


class Slow:
    """A pipe that takes a message in two pieces, with a pause between them."""

    def __init__(self) -> None:
        self.taken = b""
        self.may_go_on = asyncio.Event()

    async def send(self, data: bytes) -> None:
        self.taken += data[:1]
        await self.may_go_on.wait()
        self.taken += data[1:]


async def test_a_pong_does_not_lie_within_a_message_that_is_on_its_way() -> None:
    pipe = Slow()
    both = _Both(cast("Any", pipe), cast("WebSocket", FakeVisitor()))
    messages = deque([b"AAAA", b"B"])
    both._service.data_to_send = lambda: [messages.popleft()]  # type: ignore[method-assign]
    sending = [
        asyncio.create_task(both._flush())  # pyright: ignore[reportPrivateUsage]
        for _ in range(2)
    ]
    await asyncio.sleep(0)
    pipe.may_go_on.set()
    await asyncio.gather(*sending)
    assert pipe.taken == b"AAAAB"


class FakeVisitor:
    """A websocket that wants nothing."""

    scope: dict[str, Any] = {}  # noqa: RUF012 - nothing is written to it
