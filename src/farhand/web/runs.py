"""Runs: the list, one of them, and everything it left behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Query
from pydantic import Field

from ..engine.runs import FAILURE, Series
from ..lifecycle import RUN
from ..model import Artifact, Attempt, Event, LogLine, MetricPoint, Page
from .access import require
from .asking import Asking
from .paging import After, Cursor, Limit, TaskState, check_task_state
from .routing import Routes
from .views import (
    JsonResponse,
    RunDetail,
    RunView,
    TaskView,
    list_view,
    page_view,
    run_detail,
    run_view,
    task_view,
)

router = Routes(prefix="/runs", tags=["runs"])
READ = [Depends(require("read"))]


@router.get("", response_model=Page[RunView], dependencies=READ)
async def list_runs(
    services: Asking,
    limit: Limit = 50,
    cursor: Cursor = None,
    flow: str | None = None,
    state: Annotated[str | None, Query(description=f"One of {', '.join(RUN)}.")] = None,
    sweep: Annotated[
        str | None, Query(description="Only runs that were started together by this name.")
    ] = None,
    since: Annotated[
        float | None, Query(ge=0, le=1e11, description="Created then or later; seconds since the epoch.")
    ] = None,
    host: Annotated[
        str | None, Query(description="Only runs that are on this machine, or were last.")
    ] = None,
    parent: Annotated[str | None, Query(description="Only runs of flows that this run called.")] = None,
    text: Annotated[
        str | None,
        Query(
            min_length=1, max_length=200, description="Found in the id, flow, name, message or parameters."
        ),
    ] = None,
) -> JsonResponse:
    """A page of runs, newest first. A page of a search for text may be short and still have a next one."""
    if state is not None and state not in RUN:
        raise HTTPException(422, f"state: must be one of {', '.join(RUN)}")
    page = await services.runs.page(
        limit, cursor, flow, state, sweep=sweep, since=since, text=text, host=host, parent=parent
    )
    return JsonResponse(page_view(page, [run_view(run) for run in page.items]))


@router.get("/{id}", response_model=RunDetail, dependencies=READ)
async def get_run(id: str, services: Asking) -> JsonResponse:
    """One run, by its id or the beginning of it."""
    return JsonResponse(run_detail(*await services.runs.detailed(id)))


@router.post(
    "/{id}/cancel", status_code=202, response_model=RunView, dependencies=[Depends(require("cancel"))]
)
async def cancel_run(id: str, services: Asking) -> JsonResponse:
    """Ask for the end of a run. 409 when it has ended already."""
    run = await services.runs.get(id)
    return JsonResponse(run_view(await services.runs.cancel(run.id)), status_code=202)


@dataclass(frozen=True, slots=True)
class Retry:
    """What a run is retried with. ``since`` is called ``from``: failure, start, or a task.

    ``params`` replace those of the run one by one. The same ``idempotency_key`` again gives the same run
    again.
    """

    since: Annotated[str, Field(alias="from", min_length=1)] = FAILURE
    params: dict[str, Any] = field(default_factory=dict[str, Any])
    idempotency_key: str | None = None


@router.post("/{id}/retry", status_code=202, response_model=RunView, dependencies=[Depends(require("start"))])
async def retry_run(id: str, services: Asking, retry: Retry | None = None) -> JsonResponse:
    """Queue a new run in place of one that has ended; what it kept is replayed. 409 when it has not ended."""
    retry = retry or Retry()
    run = await services.runs.retry(id, retry.since, retry.params, retry.idempotency_key)
    return JsonResponse(run_view(run), status_code=202, headers={"Location": f"../../runs/{run.id}"})


@router.get("/{id}/attempts", response_model=Page[Attempt], dependencies=READ)
async def run_attempts(id: str, services: Asking) -> JsonResponse:
    """Every hand-off of the run to a worker."""
    run = await services.runs.get(id)
    return JsonResponse(list_view(await services.runs.attempts(run.id)))


@dataclass(frozen=True, slots=True)
class Count:
    """How many calls are in one state."""

    state: str
    count: int


@router.get("/{id}/tasks/summary", response_model=Page[Count], dependencies=READ)
async def summarise_tasks(id: str, services: Asking, after: After = 0) -> JsonResponse:
    """How many of the run's task calls are in each state; those after a number alone, if it is given."""
    counts = await services.calls.tally(id, after)
    return JsonResponse(list_view([Count(state, count) for state, count in counts.items()]))


@router.get("/{id}/tasks", response_model=Page[TaskView], dependencies=READ)
async def run_tasks(
    id: str,
    services: Asking,
    after: After = 0,
    limit: Limit = 200,
    state: TaskState = None,
    failing_first: Annotated[
        bool,
        Query(
            description="Where a page does not hold all, it begins with what failed or crashed, up to half of"
            " it. The pages after it are in order, so such a call is on its own as well."
        ),
    ] = False,
) -> JsonResponse:
    """The run's task calls in the order they were made."""
    check_task_state(state)
    if state is not None and failing_first:
        raise HTTPException(422, "failing_first: calls of one state are in order; ask for one of the two")
    if failing_first:
        page = await services.calls.failing_first(id, after, limit)
    else:
        page = await services.calls.page(id, after, limit, state)
    return JsonResponse(
        page_view(page, [task_view(task, services.calls.why_waiting(task)) for task in page.items])
    )


@router.get("/{id}/logs", response_model=Page[LogLine], dependencies=READ)
async def run_logs(id: str, services: Asking, after: After = 0, limit: Limit = 1000) -> JsonResponse:
    """Lines of the run's log; ask again with the number of the last one for those that follow."""
    run = await services.runs.get(id)
    return JsonResponse(page_view(await services.runs.logs(run.id, after, limit)))


@router.get("/{id}/metrics/summary", response_model=Page[Series], dependencies=READ)
async def summarise_metrics(id: str, services: Asking) -> JsonResponse:
    """Each numeric series in one line: how many points, the last, the least and the greatest."""
    run = await services.runs.get(id)
    return JsonResponse(list_view(await services.runs.series(run.id)))


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
