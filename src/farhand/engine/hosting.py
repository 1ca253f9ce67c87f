"""Services as people and tasks see them: what the store has of each, and what is known of its worker now."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..errors import NotFound, ServiceUnavailable
from ..model import Attempt, LogLine, Page, Service
from ..store import Store
from ..store.services import anchor_of
from .bus import Bus
from .consequences import Consequences
from .fleet import Fleet
from .member import Holding, Member
from .queue import Queue

_SETTLED = frozenset({"healthy", "down", "stopped"})
_TELLING = frozenset({"service", "worker", "overflow"})
WAIT_S_MAX = 30.0
STARTS_SHOWN = 12


class Reached(NamedTuple):
    """A service that is healthy, the worker that runs it, and under which lease."""

    service: Service
    member: Member
    holding: Holding


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """A service as it is now; ``url`` is empty unless it is healthy."""

    service: Service
    url: str = ""


class Hosting:
    """Every operation on services."""

    def __init__(
        self, store: Store, fleet: Fleet, queue: Queue, consequences: Consequences, bus: Bus
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._queue = queue
        self._consequences = consequences
        self._bus = bus

    async def list(self) -> list[ServiceStatus]:
        """Every service of a flow that is offered, by name."""
        return [self._status(service) for service in await self._store.services.list()]

    async def get(self, name: str) -> ServiceStatus:
        """One service. Raises `NotFound`."""
        return self._status(await self._known(name))

    async def start(self, name: str) -> ServiceStatus:
        """Start a service that was stopped or is down. Raises `NotFound`, `Conflict`."""
        await self._consequences.of(self._store.services.start(name, time.time()))
        return await self.get(name)

    async def stop(self, name: str) -> ServiceStatus:
        """Stop a service until somebody starts it. Raises `NotFound`."""
        await self._consequences.of(self._store.services.stop(name, time.time()))
        return await self.get(name)

    async def logs(self, name: str, after: int, limit: int) -> Page[LogLine]:
        """A page of its lines, of all its starts. Raises `NotFound`."""
        await self._known(name)
        return await self._store.logs.page(anchor_of(name), after, limit)

    async def last_line(self, name: str) -> int:
        """The number of the latest line that it wrote, 0 for none."""
        return await self._store.logs.last_number(anchor_of(name))

    async def attempts(self, name: str) -> list[Attempt]:
        """Its latest starts, the newest first."""
        return await self._store.services.attempts(name, STARTS_SHOWN)

    async def settled(self, name: str, wait_s: float) -> ServiceStatus:
        """The service once it is healthy, down or stopped, or as it is by then. Raises `NotFound`."""
        status = await self.get(name)
        if status.service.state in _SETTLED or wait_s <= 0:
            return status
        async with self._bus.subscribe() as notices:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(wait_s, WAIT_S_MAX)):
                    while (status := await self.get(name)).service.state not in _SETTLED:
                        async for notice in notices:
                            if notice.kind in _TELLING:
                                break
                        else:
                            break  # the server is stopping
        return await self.get(name)

    async def reached(self, name: str) -> Reached:
        """Who runs the service now. Raises `NotFound`, or `ServiceUnavailable` while it is not healthy."""
        status = await self.get(name)
        service = status.service
        held = None if service.job is None else self._fleet.holder(service.job)
        if held is None or not status.url:
            raise ServiceUnavailable(
                f"the service {name!r} is {service.state}: {service.message}", state=service.state
            )
        return Reached(service, *held)

    async def _known(self, name: str) -> Service:
        service = await self._store.services.get(name)
        if service is None:
            raise NotFound(f"there is no service {name!r}; `farhand services list` shows them")
        return service

    def _status(self, service: Service) -> ServiceStatus:
        """What the store says, unless what is known of the worker, or of the queue, is newer."""
        if service.job is None:
            return ServiceStatus(service)
        held = self._fleet.holder(service.job)
        if held is None:
            return ServiceStatus(self._waiting(service, service.job))
        member = held[0]
        if not member.attached:
            message = f"its worker {member.name} is not heard of"
            return ServiceStatus(replace(service, state="degraded", reason="no_worker", message=message))
        if service.state != "healthy" or service.port is None:
            return ServiceStatus(service)
        return ServiceStatus(service, url_of(member.service_host or member.address, service.port))

    def _waiting(self, service: Service, job: str) -> Service:
        waiting = self._queue.waiting(job)
        if waiting is None or waiting.code == "in_line":
            return service if service.state != "healthy" else replace(service, state="degraded")
        if waiting.code == "delayed":
            return replace(service, message=f"{service.message}; {waiting.message}")
        return replace(service, state="degraded", reason="no_worker", message=waiting.message)


def url_of(host: str, port: int) -> str:
    """The address of what listens on a port of a host."""
    host = host or "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
