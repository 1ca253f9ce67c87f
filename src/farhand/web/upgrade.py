"""A websocket to a service, over a tunnel (RFC 6455, spoken by websockets)."""

from __future__ import annotations

import asyncio
import contextlib

from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.client import ClientProtocol
from websockets.datastructures import Headers as Fields
from websockets.exceptions import InvalidHandshake, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import CONNECTING, OPEN
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from farhand_worker.racing import until_one_ends

from ..engine.tunnels import Pipe
from .forwarding import Visit, to_service
from .problems import problem

_DATA = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)
_ORDERLY, _NO_CODE, _ABNORMAL, _GONE = 1000, 1005, 1006, 1011
"""Codes of closes: RFC 6455, section 7.4.1; the two in the middle are never sent."""


async def carry(
    pipe: Pipe, websocket: WebSocket, target: bytes, visit: Visit, answer_s: float = 0.0
) -> Response | None:
    """Open the same websocket at the service, and carry messages both ways until either end closes.

    Returns what refuses it, if something does. Raises TimeoutError when the service does not answer the
    handshake within ``answer_s`` seconds; 0 waits for ever.
    """
    both = _Both(pipe, websocket)
    try:
        async with asyncio.timeout(answer_s or None):
            refusal = await both.shake_hands(target, visit)
        if refusal is None:
            await both.converse()
        return refusal
    finally:
        pipe.close()


class _Both:
    def __init__(self, pipe: Pipe, websocket: WebSocket) -> None:
        self._pipe = pipe
        self._visitor = websocket
        wanted = [Subprotocol(name) for name in websocket.scope.get("subprotocols", ())]
        self._service = ClientProtocol(parse_uri("ws://service/"), subprotocols=wanted or None)
        self._parts: list[bytes] = []
        self._is_text = False
        self._sending = asyncio.Lock()

    async def converse(self) -> None:
        """Take the visitor's side up, and carry what either says."""
        chosen = self._service.subprotocol
        await self._visitor.accept(None if chosen is None else str(chosen))
        await until_one_ends(self._there(), self._back())

    async def shake_hands(self, target: bytes, visit: Visit) -> Response | None:
        """Open the service's side; or what refuses it."""
        request = self._service.connect()
        fields = Fields([(k, v) for k, v in request.headers.raw_items() if k.lower() != "host"])
        for name, value in to_service(self._visitor.scope["headers"], visit):
            if not name.startswith(b"sec-websocket-"):
                fields[name.decode("latin-1")] = value.decode("latin-1")
        self._service.send_request(Request(target.decode("latin-1"), fields))
        try:
            await self._flush()
            while self._service.state is CONNECTING and self._service.handshake_exc is None:
                await self._arrive()
            if self._service.handshake_exc is not None:
                raise self._service.handshake_exc
        except InvalidStatus as error:
            answer = error.response
            return Response(bytes(answer.body or b""), answer.status_code, media_type="text/plain")
        except (InvalidHandshake, ConnectionError, EOFError) as error:
            return problem(502, "service_broke_off", f"the service opened no websocket: {error}")
        return None

    async def _there(self) -> None:
        """From the visitor to the service."""
        while True:
            message = await self._visitor.receive()
            if message["type"] == "websocket.disconnect":
                with contextlib.suppress(ConnectionError):
                    code = message.get("code") or _GONE
                    self._service.send_close(_ORDERLY if code in (_NO_CODE, _ABNORMAL) else code)
                    await self._flush()
                return
            text = message.get("text")
            if text is not None:
                self._service.send_text(text.encode())
            else:
                self._service.send_binary(message.get("bytes") or b"")
            try:
                await self._flush()
            except ConnectionError:
                return

    async def _back(self) -> None:
        """From the service to the visitor."""
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            await self._pass_on_all()  # what came together with the answer to the handshake
            while self._service.state is OPEN:
                await self._arrive()
                await self._pass_on_all()
            said = self._service.close_rcvd
            if said is None:
                await self._visitor.close(_GONE, "the service has ended the connection")
            else:
                await self._visitor.close(_ORDERLY if said.code == _NO_CODE else said.code, said.reason)

    async def _arrive(self) -> None:
        data = await self._pipe.receive()
        if data:
            self._service.receive_data(data)
        else:
            self._service.receive_eof()
        with contextlib.suppress(ConnectionError):
            await self._flush()  # pongs, and the answer to a close

    async def _pass_on_all(self) -> None:
        for event in self._service.events_received():
            if isinstance(event, Frame):
                await self._pass_on(event)

    async def _pass_on(self, frame: Frame) -> None:
        if frame.opcode not in _DATA:
            return
        if frame.opcode is not Opcode.CONT:
            self._parts, self._is_text = [], frame.opcode is Opcode.TEXT
        self._parts.append(bytes(frame.data))
        if frame.fin:
            whole = b"".join(self._parts)
            if self._is_text:
                await self._visitor.send_text(whole.decode())
            else:
                await self._visitor.send_bytes(whole)

    async def _flush(self) -> None:
        async with self._sending:  # a pong may not lie within a long message: that goes in pieces
            for data in self._service.data_to_send():
                if data:
                    await self._pipe.send(data)
