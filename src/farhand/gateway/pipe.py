"""The websocket that a worker has dialled for a tunnel, as a pipe."""

from __future__ import annotations

import asyncio
import contextlib

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from farhand_worker.protocol import TUNNEL_BYTES


class WorkerPipe:
    """One connection to a service. It is read no faster than its reader takes it."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket
        self._over = asyncio.Event()

    @property
    def closed(self) -> bool:
        """Whether either end has ended it."""
        return self._over.is_set() or self._websocket.client_state is not WebSocketState.CONNECTED

    async def receive(self) -> bytes:
        """What the service sent next; empty once it, or its worker, has gone."""
        try:
            return b"" if self._over.is_set() else await self._websocket.receive_bytes()
        except (WebSocketDisconnect, KeyError, RuntimeError):
            self._over.set()
            return b""

    async def send(self, data: bytes) -> None:
        """Send it to the service. Raises ConnectionError once that has gone."""
        for start in range(0, len(data), TUNNEL_BYTES):
            if self._over.is_set():
                raise ConnectionError("the service has ended the connection")
            try:
                await self._websocket.send_bytes(data[start : start + TUNNEL_BYTES])
            except (WebSocketDisconnect, RuntimeError, OSError) as error:
                self._over.set()
                raise ConnectionError("the connection to its worker has ended") from error

    def close(self) -> None:
        """End it."""
        self._over.set()

    async def until_closed(self, revoked: asyncio.Event) -> None:
        """Hold the websocket open until either end ends it, or the worker's token is revoked."""
        ends = [asyncio.ensure_future(event.wait()) for event in (self._over, revoked)]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
            self._over.set()
            with contextlib.suppress(WebSocketDisconnect, RuntimeError, OSError):
                await self._websocket.close()
