"""Tunnels: connections to services on workers, which the workers dial when they are asked to.

A connection that is idle after an answer is kept a while for the next question to the same start of the same
service, so that a page of many parts does not cost a dial for each.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Protocol

from farhand_worker.protocol import Tunnel as Wanted

from ..errors import ServiceUnavailable
from ..model import Service
from .member import Holding, Member

DIAL_S = 10.0
IDLE_S = 15.0
IDLE_MAX = 8
"""So many idle connections are kept for each service."""

Key = tuple[str, int]


class Pipe(Protocol):
    """Bytes to and from a service."""

    async def receive(self) -> bytes:
        """What came next; empty at its end."""
        ...

    async def send(self, data: bytes) -> None:
        """Send it, as the other end takes it. Raises OSError once that has gone."""
        ...

    def close(self) -> None:
        """End it."""
        ...

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        ...


class Tunnels:
    """Those that are asked for and have not come yet, and those that wait for their next use."""

    def __init__(self) -> None:
        self._awaited: dict[str, tuple[str, asyncio.Future[Pipe]]] = {}
        self._idle: dict[Key, list[tuple[Pipe, asyncio.TimerHandle]]] = {}

    async def open(self, service: Service, member: Member, holding: Holding) -> Pipe:
        """A new connection to a service. Raises `ServiceUnavailable`, with what its worker says."""
        if member.link is None or not member.tunnels:
            raise unreachable(service, f"its worker {member.name} cannot carry connections; upgrade it")
        tunnel, coming = secrets.token_urlsafe(18), asyncio.get_running_loop().create_future()
        self._awaited[tunnel] = (member.name, coming)
        member.link.send(Wanted(tunnel, holding.job.id, holding.lease))
        try:
            async with asyncio.timeout(DIAL_S):
                return await coming
        except TimeoutError:
            raise unreachable(service, f"its worker did not dial within {DIAL_S:g} s") from None
        except ConnectionError as error:
            raise unreachable(service, str(error)) from None
        except asyncio.CancelledError:
            if coming.done() and not coming.cancelled() and coming.exception() is None:
                coming.result().close()  # it came in the moment in which nobody wanted it any more
            raise
        finally:
            del self._awaited[tunnel]

    def arrived(self, tunnel: str, worker: str, pipe: Pipe) -> bool:
        """A worker has dialled: whether that tunnel was asked of it and is still waited for."""
        coming = self._coming(tunnel, worker)
        if coming is None:
            return False
        coming.set_result(pipe)
        return True

    def refused(self, tunnel: str, worker: str, message: str) -> None:
        """A worker says why it does not dial."""
        coming = self._coming(tunnel, worker)
        if coming is not None:
            coming.set_exception(ConnectionError(message))

    def _coming(self, tunnel: str, worker: str) -> asyncio.Future[Pipe] | None:
        of, coming = self._awaited.get(tunnel, ("", None))
        return None if coming is None or of != worker or coming.done() else coming

    # ------------------------------------------------------------ kept for the next use

    def idle(self, holding: Holding) -> Pipe | None:
        """A connection to this start of a service that nobody uses now, if there is one."""
        kept = self._idle.get(_key(holding), [])
        while kept:
            pipe, timer = kept.pop()
            timer.cancel()
            if not pipe.closed:
                return pipe
        return None

    def keep(self, holding: Holding, pipe: Pipe) -> None:
        """An answer is complete, and the service may be asked again."""
        kept = self._idle.setdefault(_key(holding), [])
        if len(kept) >= IDLE_MAX:
            pipe.close()
            return
        timer = asyncio.get_running_loop().call_later(IDLE_S, self._drop, _key(holding), pipe)
        kept.append((pipe, timer))

    def _drop(self, key: Key, pipe: Pipe) -> None:
        pipe.close()
        kept = [each for each in self._idle.get(key, []) if each[0] is not pipe]
        if kept:
            self._idle[key] = kept
        else:
            self._idle.pop(key, None)


def _key(holding: Holding) -> Key:
    return holding.job.id, holding.lease


def unreachable(service: Service, why: str) -> ServiceUnavailable:
    """The error for a service that is not reached through the server."""
    return ServiceUnavailable(f"the service {service.name!r} is not reached: {why}", state=service.state)
