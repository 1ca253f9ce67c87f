"""One exchange, and one websocket, with a service: what goes wrong in the middle of either."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, cast

import pytest
from starlette.websockets import WebSocket

from farhand.web.exchange import Exchange, NoAnswer
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
