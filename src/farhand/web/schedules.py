"""Schedules: what fires when, and holding one back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from fastapi import Depends

from ..engine.schedules import Planned
from ..model import Fire, Page
from .access import require
from .asking import Asking
from .paging import Limit
from .routing import Routes
from .views import JsonResponse, list_view

router = Routes(prefix="/schedules", tags=["schedules"])
READ = [Depends(require("read"))]
CHANGE = [Depends(require("schedules"))]


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """A schedule. ``next`` are its coming fires; ``zone`` is that of its clock."""

    id: str
    flow: str
    project: str
    state: str
    when: str
    zone: str
    spec: dict[str, Any]
    params: Any
    next: list[float]
    last: Fire | None
    problem: str
    created_at: float


def schedule_view(planned: Planned) -> ScheduleView:
    """A schedule as the API shows it."""
    schedule = planned.schedule
    return ScheduleView(
        id=schedule.id,
        flow=schedule.flow,
        project=schedule.project,
        state=planned.state,
        when=planned.when,
        zone=planned.zone,
        spec=schedule.spec,
        params=msgspec.Raw(schedule.params.encode()),
        next=list(planned.next),
        last=planned.last,
        problem=planned.problem,
        created_at=schedule.created_at,
    )


@router.get("", response_model=Page[ScheduleView], dependencies=READ)
async def list_schedules(services: Asking) -> JsonResponse:
    """Every schedule with its last fire and the next ones."""
    return JsonResponse(list_view([schedule_view(item) for item in await services.schedules.list()]))


@router.get("/{id}", response_model=ScheduleView, dependencies=READ)
async def get_schedule(id: str, services: Asking) -> JsonResponse:
    """One schedule, by its id or the beginning of it."""
    return JsonResponse(schedule_view(await services.schedules.get(id)))


@router.get("/{id}/fires", response_model=Page[Fire], dependencies=READ)
async def list_fires(id: str, services: Asking, limit: Limit = 50) -> JsonResponse:
    """The latest fires of a schedule, newest first: what each started, and whether it was late."""
    return JsonResponse(list_view(await services.schedules.fires(id, limit)))


@router.post("/{id}/pause", response_model=ScheduleView, dependencies=CHANGE)
async def pause_schedule(id: str, services: Asking) -> JsonResponse:
    """Let a schedule not fire until it is resumed."""
    return JsonResponse(schedule_view(await services.schedules.pause(id)))


@router.post("/{id}/resume", response_model=ScheduleView, dependencies=CHANGE)
async def resume_schedule(id: str, services: Asking) -> JsonResponse:
    """Let a schedule fire again, from its next time on; nothing of the pause is made up for."""
    return JsonResponse(schedule_view(await services.schedules.resume(id)))
