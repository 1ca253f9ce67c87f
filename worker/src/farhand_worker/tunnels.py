"""Tunnels: connections to services kept here, for those who use them through the server.

Each is a connection of its own, dialled from here like the session, so that it passes whatever the session
passes, and a reader that is slow holds up nothing else. It leads to the service that was started under the
lease and to nobody else: where its own processes listen is what the watch over it has seen last, and the
socket that it saw must still be there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, Awaitable, Callable, Dict, Optional, Set, Tuple

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from .dial import DialRefused, NotConnected
from .protocol import TUNNEL_BYTES, NoTunnel, Tunnel
from .racing import until_one_ends

CONNECT_S = 5.0
TUNNELS_MAX = 200
"""So many are open at once."""

_log = logging.getLogger("farhand.worker")
Place = Tuple[str, int]


class Tunnels:
    """``find`` says where the service of a job and lease listens, ``dial`` opens a connection for an id."""

    def __init__(
        self,
        find: Callable[[str, int], Awaitable[Optional[Place]]],
        dial: Callable[[str], Awaitable[ClientConnection]],
        send: Callable[[NoTunnel], None],
    ) -> None:
        self._find = find
        self._dial = dial
        self._send = send
        self._open: Set[asyncio.Task[None]] = set()
        self.handlers: Dict[type, Callable[[Any], None]] = {Tunnel: self._asked}

    def close(self) -> None:
        """End them all."""
        for task in self._open:
            task.cancel()

    def _asked(self, wanted: Tunnel) -> None:
        if len(self._open) >= TUNNELS_MAX:
            self._send(NoTunnel(wanted.id, f"its worker has {TUNNELS_MAX} connections open already"))
            return
        task = asyncio.ensure_future(self._carry(wanted))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _carry(self, wanted: Tunnel) -> None:
        place = await self._find(wanted.job, wanted.lease)
        if place is None:
            self._send(NoTunnel(wanted.id, "the service does not listen"))
            return
        try:
            reader, writer = await asyncio.wait_for(asyncio.open_connection(*place), CONNECT_S)
        except (OSError, asyncio.TimeoutError) as error:  # noqa: UP041 - another class before 3.11
            self._send(NoTunnel(wanted.id, f"the service does not accept: {error or 'too slow'}"))
            return
        try:
            link = await self._dial(wanted.id)
        except (NotConnected, DialRefused) as error:
            _log.warning("a connection to a service could not be carried: %s", error)
            self._send(NoTunnel(wanted.id, f"its worker could not dial again: {error}"))
        else:
            await join(reader, writer, link)
        finally:
            writer.close()


async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: ClientConnection) -> None:
    """Carry both ways until either end has ended; each is read no faster than the other takes it."""

    async def there() -> None:
        while data := await reader.read(TUNNEL_BYTES):
            await link.send(data)

    async def back() -> None:
        async for data in link:
            writer.write(data if isinstance(data, bytes) else data.encode())
            await writer.drain()

    try:
        await until_one_ends(there(), back())
    finally:
        with contextlib.suppress(ConnectionClosed, OSError):
            await link.close()
