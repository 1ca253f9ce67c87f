"""Runs: the list, one of them, and everything it left behind."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Query

from ..lifecycle import RUN
from ..model import Artifact, Attempt, Event, LogLine, MetricPoint, Page
from .access import require
from .asking import Asking
from .paging import After, Cursor, Limit
from .views import JsonResponse, RunDetail, RunView, list_view, page_view, run_detail, run_view, task_view

router = APIRouter(prefix="/runs", tags=["runs"])
READ = [Depends(require("read"))]


@router.get("", response_model=Page[RunView], dependencies=READ)
async def list_runs(
    services: Asking,
    limit: Limit = 50,
    cursor: Cursor = None,
    flow: str | None = None,
    state: Annotated[str | None, Query(description=f"One of {', '.join(RUN)}.")] = None,
) -> JsonResponse:
    """A page of runs, newest first."""
    if state is not None and state not in RUN:
        raise HTTPException(422, f"state: must be one of {', '.join(RUN)}")
    page = await services.runs.page(limit, cursor, flow, state)
    return JsonResponse(page_view(page, [run_view(run) for run in page.items]))


@router.get("/{id}", response_model=RunDetail, dependencies=READ)
async def get_run(id: str, services: Asking) -> JsonResponse:
    """One run, by its id or the beginning of it."""
    run = await services.runs.get(id)
    return JsonResponse(run_detail(run, await services.runs.attempts(run.id)))


@router.post(
    "/{id}/cancel", status_code=202, response_model=RunView, dependencies=[Depends(require("cancel"))]
)
async def cancel_run(id: str, services: Asking) -> JsonResponse:
    """Ask for the end of a run. 409 when it has ended already."""
    run = await services.runs.get(id)
    return JsonResponse(run_view(await services.runs.cancel(run.id)), status_code=202)


@router.get("/{id}/attempts", response_model=Page[Attempt], dependencies=READ)
async def run_attempts(id: str, services: Asking) -> JsonResponse:
    """Every hand-off of the run to a worker."""
    run = await services.runs.get(id)
    return JsonResponse(list_view(await services.runs.attempts(run.id)))


@router.get("/{id}/tasks", dependencies=READ)
async def run_tasks(id: str, services: Asking, after: After = 0, limit: Limit = 200) -> JsonResponse:
    """The run's task calls in the order they were made."""
    run = await services.runs.get(id)
    page = await services.runs.tasks(run.id, after, limit)
    return JsonResponse(
        page_view(page, [task_view(task, services.runs.why_waiting(task)) for task in page.items])
    )


@router.get("/{id}/logs", response_model=Page[LogLine], dependencies=READ)
async def run_logs(id: str, services: Asking, after: After = 0, limit: Limit = 1000) -> JsonResponse:
    """Lines of the run's log; ask again with the number of the last one for those that follow."""
    run = await services.runs.get(id)
    return JsonResponse(page_view(await services.runs.logs(run.id, after, limit)))


@router.get("/{id}/metrics", response_model=Page[MetricPoint], dependencies=READ)
async def run_metrics(id: str, services: Asking, after: After = 0, limit: Limit = 1000) -> JsonResponse:
    """Points of the run's numeric series."""
    run = await services.runs.get(id)
    return JsonResponse(page_view(await services.runs.metrics(run.id, after, limit)))


@router.get("/{id}/events", response_model=Page[Event], dependencies=READ)
async def run_events(id: str, services: Asking, after: After = 0, limit: Limit = 200) -> JsonResponse:
    """What happened to the run, from the event log."""
    run = await services.runs.get(id)
    return JsonResponse(page_view(await services.runs.events(after, limit, run.id)))


@router.get("/{id}/artifacts", response_model=Page[Artifact], dependencies=READ)
async def run_artifacts(id: str, services: Asking) -> JsonResponse:
    """The files the run saved."""
    run = await services.runs.get(id)
    return JsonResponse(list_view(await services.runs.artifacts(run.id)))
