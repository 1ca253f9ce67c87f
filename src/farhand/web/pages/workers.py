"""The machines, live: the list, and a machine with what is in its slots and what it did."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import parse_qs, quote

from fastapi import Depends, Request
from starlette.responses import RedirectResponse, Response

from ...engine.operations import SLOTS_MAX
from ...engine.services import Services
from ...errors import NotFound, Usage
from ...model import Event
from ..access import require
from ..asking import Asking
from ..audit import note
from ..routing import Routes
from ..settings import WebSettings
from .lanes import LANE_HEIGHT, WIDTH, lanes
from .shell import PageRoute, Visitor, render

router = Routes(kind=PageRoute, described=False)
HOURS = 6
RECENT = 12


@router.get("/workers")
async def workers_page(request: Request, services: Asking, visitor: Visitor) -> Response:
    """The page."""
    settings: WebSettings = request.app.state.settings
    return render(request, "workers.html", visitor, url=settings.url or "URL", **await _all(services))


@router.get("/fragments/workers")
async def rows(request: Request, services: Asking, visitor: Visitor) -> Response:
    """The rows of the table, as they are now."""
    return render(request, "workers_rows.html", visitor, root="./", **await _all(services))


async def _all(services: Services) -> dict[str, Any]:
    workers = await services.workers.list()
    names = [status.worker.name for status in workers]
    return {
        "workers": workers,
        "drift": {name: services.fitness.drift(name) for name in names},
        "provisions": await services.machines.provisions(),
    }


@router.get("/workers/{name}")
async def worker_page(request: Request, name: str, services: Asking, visitor: Visitor) -> Response:
    """One worker, or what is left of one that was forgotten."""
    try:
        return render(request, "worker.html", visitor, **await _shown(services, name))
    except NotFound:
        past, events = await services.workers.past(name, 0.0), await _events(services, name)
        if not past and not events:
            raise
        left: dict[str, Any] = {"recent": past[:RECENT], "events": events, "hours": None}
        return render(request, "worker_forgotten.html", visitor, name=name, **left)


@router.get("/workers/{name}/now")
async def now(request: Request, name: str, services: Asking, visitor: Visitor) -> Response:
    """The same worker, as it is now."""
    return render(request, "worker_now.html", visitor, root="../", **await _shown(services, name))


@router.post("/workers/{name}/slots", dependencies=[Depends(require("workers"))])
async def set_slots(request: Request, name: str, services: Asking) -> Response:
    """Give the worker so many slots, and show it again with what there is to say of that."""
    form = parse_qs((await request.body()).decode("utf-8", "replace"))
    given = "".join(form.get("slots", []))
    if not given.isascii() or not given.isdigit():
        raise Usage(f"a worker has between 0 and {SLOTS_MAX} slots, not {given!r}")
    note(request, parallel=int(given[:9]))
    await services.operations.set_slots(name, int(given[:9]))
    return RedirectResponse(f"../{quote(name)}", status_code=303)


async def _events(services: Services, name: str) -> list[Event]:
    return (await services.workers.events(RECENT, worker=name, kind="worker.")).items


async def _shown(services: Services, name: str) -> dict[str, Any]:
    status, at = await services.workers.get(name), time.time()
    past = await services.workers.past(name, at - HOURS * 3600)
    drawn = lanes(past, at - HOURS * 3600, at)
    return {
        "seen": status,
        "worker": status.worker,
        "recent": past[:RECENT],
        "lanes": drawn,
        "hours": HOURS,
        "lane_height": LANE_HEIGHT,
        "width": WIDTH,
        "events": await _events(services, name),
        "drift": services.fitness.drift(name),
        "slots_max": SLOTS_MAX,
    }
