"""Server-sent events: notices that something changed, for consoles and programs that follow along.

A notice says what changed, not how: whoever hears it asks for what it does not have yet, by cursor. So
notices of one kind about one run are worth one when they come faster than anyone would look.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from fastapi import Depends, Query
from sse_starlette import EventSourceResponse, ServerSentEvent

from ..engine.bus import Notice
from ..engine.roles import Identity
from ..engine.services import Services
from ..model import Event, Run
from .access import require
from .asking import Asking
from .routing import Routes
from .views import notice_view

router = Routes(tags=["stream"])

EVERY_S = 0.2
"""Notices that are the same but for their moment leave at most this often; the first at once."""

OVERFLOW = "overflow"
"""The kind of a notice that stands for others that were lost: look at everything again."""

PING_S = 20
"""A comment line this often keeps proxies from closing an idle stream."""


class Pending:
    """The latest notice of each kind about each thing, in the order they first came."""

    def __init__(self, run: str | None = None) -> None:
        self._run = run
        self._notices: dict[tuple[str, str | None], Notice] = {}

    def add(self, notice: Notice) -> bool:
        """Keep a notice; False when this stream does not want it."""
        about = _about(notice)
        wanted = notice.kind == OVERFLOW or (notice.kind != "worker" and about == self._run)
        if self._run is not None and not wanted:
            return False
        self._notices[notice.kind, about] = notice
        return True

    def take(self) -> list[Notice]:
        """What has gathered; nothing is kept."""
        taken, self._notices = list(self._notices.values()), {}
        return taken


def _about(notice: Notice) -> str | None:
    record: Any = notice.record
    if isinstance(record, Run):
        return record.id
    if notice.kind == "service":
        return f"service:{record}"
    if isinstance(record, Event):
        return f"{record.kind} {record.worker} {record.at}"
    return record if isinstance(record, str) else notice.run


async def notices(services: Services, run: str | None, who: Identity) -> AsyncIterator[ServerSentEvent]:
    """The events of one stream, until the bus closes, the client leaves, or its credential ends."""
    pending, news = Pending(run), asyncio.Event()
    async with services.bus.subscribe() as source:

        async def gather() -> None:
            async for notice in source:
                if pending.add(notice):
                    news.set()

        with services.tokens.watch(who) as revoked:
            over = [asyncio.create_task(gather()), asyncio.create_task(_ended(revoked, who.expires_at))]
            for task in over:
                task.add_done_callback(lambda _: news.set())
            try:
                yield ServerSentEvent(comment="listening")
                while not any(task.done() for task in over):
                    await news.wait()
                    news.clear()
                    if over[1].done():
                        return
                    for notice in pending.take():
                        yield _event(notice)
                    await asyncio.sleep(EVERY_S)
            finally:
                for task in over:
                    task.cancel()
                await asyncio.gather(*over, return_exceptions=True)


async def _ended(revoked: asyncio.Event, expires_at: float | None) -> None:
    """Return when a credential is revoked or expires."""
    left_s = None if expires_at is None else max(0.0, expires_at - time.time())
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(revoked.wait(), left_s)


def _event(notice: Notice) -> ServerSentEvent:
    shown = notice_view(notice.kind, notice.run, notice.record)
    return ServerSentEvent(event=notice.kind, data=msgspec.json.encode(shown).decode())


@router.get("/stream", response_class=EventSourceResponse)
async def stream(
    services: Asking,
    who: Annotated[Identity, Depends(require("read"))],
    run: Annotated[str | None, Query(description="Only what concerns this run.")] = None,
) -> EventSourceResponse:
    """Notices: `run`, `logs` (also tasks and metrics), `worker`, `service`, `event`, `overflow`."""
    return EventSourceResponse(notices(services, run, who), ping=PING_S, sep="\n")
