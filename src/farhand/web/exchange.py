"""One HTTP request to a service and its answer, over a tunnel: neither is ever held whole.

What is sent and what is received is HTTP/1.1 (RFC 9112), spoken by h11.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import h11
from starlette.types import Message, Receive, Send

from farhand_worker.racing import until_one_ends

from ..engine.tunnels import Pipe
from .forwarding import Headers

HEAD_BYTES_MAX = 64 * 1024


class NoAnswer(Exception):
    """The service ended the connection, or said what is no HTTP, before it had begun to answer."""


class TooLate(Exception):
    """The service did not begin to answer within the time that it is given."""


class Gone(Exception):
    """The visitor went, or the service broke off in the middle of its answer."""


class Exchange:
    """One of them. ``arriving`` makes the visitor's headers of the service's.

    Of a service that takes nothing more and says nothing for ``answer_s`` seconds no answer is expected any
    more; 0 waits for ever. Once it has begun its answer it has all the time it wants, and so has the visitor.
    """

    def __init__(
        self,
        pipe: Pipe,
        receive: Receive,
        send: Send,
        arriving: Callable[[Any], Headers],
        answer_s: float = 0.0,
    ) -> None:
        self._pipe = pipe
        self._receive = receive
        self._send = send
        self._arriving = arriving
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._answering = False
        self._answer_s = answer_s
        self._patience = asyncio.timeout(None)
        self.asked = False
        """Whether anything of the visitor's body was taken, so that it cannot be asked again."""

    async def run(self, method: str, target: bytes, headers: Headers) -> bool:
        """Carry it; whether the connection can carry another. Raises `NoAnswer`, `TooLate` or `Gone`."""
        try:
            async with self._patience:
                await self._carry(h11.Request(method=method, target=target, headers=headers))
        except TimeoutError:
            raise (Gone if self._answering else TooLate) from None
        except (ConnectionError, h11.ProtocolError) as error:
            raise (Gone if self._answering else NoAnswer)(str(error)) from error
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def _carry(self, request: h11.Request) -> None:
        self._expect_of_service()
        await self._pipe.send(self._http.send(request) or b"")
        asking, answering = await until_one_ends(self._ask(), self._answer())
        if answering.cancelled():
            asking.result()  # raises what broke; it ends by itself only when the visitor has gone
            raise Gone
        answering.result()

    def _expect_of_service(self) -> None:
        """From now on its time runs, unless it has begun to answer."""
        if self._answer_s and not self._answering:
            self._end_at(asyncio.get_running_loop().time() + self._answer_s)

    def _end_at(self, when: float | None) -> None:
        if not self._patience.expired():
            self._patience.reschedule(when)

    async def _ask(self) -> None:
        """Send the visitor's body as it comes, then wait for the visitor to go."""
        try:
            if await self._send_body():
                return
        except ConnectionError:
            pass  # it wants no more of it; its answer, if it gave one, says why and is still to be read
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _send_body(self) -> bool:
        """Whether the visitor went before all of it had come."""
        more = True
        while more:
            self._end_at(None)
            message = await self._receive()
            self._expect_of_service()
            if message["type"] == "http.disconnect":
                return True
            body, more = message.get("body", b""), message.get("more_body", False)
            if body:
                self.asked = True
                await self._pipe.send(self._http.send(h11.Data(data=body)) or b"")
        await self._pipe.send(self._http.send(h11.EndOfMessage()) or b"")
        return False

    async def _answer(self) -> None:
        """Pass the answer on, as fast as the visitor takes it."""
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                data = await self._pipe.receive()
                if not data and not self._answering:
                    raise NoAnswer("it ended the connection without an answer")
                self._http.receive_data(data)
            elif isinstance(event, h11.Response):
                self._answering = True
                self._end_at(None)
                await self._send(self._start(event))
            elif isinstance(event, h11.Data):
                await self._send({"type": "http.response.body", "body": bytes(event.data), "more_body": True})
            elif isinstance(event, h11.EndOfMessage):
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})
                return
            elif event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                raise Gone("the service did not end its answer")

    def _start(self, response: h11.Response) -> Message:
        headers = self._arriving([(bytes(name), bytes(value)) for name, value in response.headers])
        return {"type": "http.response.start", "status": response.status_code, "headers": headers}
