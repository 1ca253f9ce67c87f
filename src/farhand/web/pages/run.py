"""One run: what state it is in and why, its attempts, tasks, metrics, artifacts and log, live."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator
from html import escape
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import Depends, Path, Query, Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response, StreamingResponse

from ...engine.runs import FAILURE
from ...engine.services import Services
from ...errors import NotFound
from ...graph import Drawing, drawn
from ...lifecycle import RUN, TASK, is_terminal
from ...model import MetricPoint, Run
from ..access import require
from ..artifacts import SANDBOX, download
from ..asking import Asking
from ..paging import After, TaskState, check_task_state
from ..routing import Routes
from .charts import bars, charts
from .shell import PageRoute, Visitor, render
from .wording import clock, needed, sentence

router = Routes(kind=PageRoute, described=False)
ROOT = "../"
"""The way from a run's page to the root."""
TASKS = 200
EVENTS = 100
LOG_PAGE = 500
LOG_TAIL = 1000
"""A page opens with this much of the log's end; the whole of it is a link."""
METRIC_PAGES_MAX = 10
SHOWN_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml"})
"""What is shown in place. An SVG is shown as an image and served sandboxed, so no script in it runs."""


@router.get("/runs/{id}")
async def run_page(request: Request, id: str, services: Asking, visitor: Visitor) -> Response:
    """The page."""
    run = await services.runs.get(id)
    shown = await _state(services, run) | await _work(services, run, TASKS)
    tail = await tail_start(services, run.id)
    lines = await services.runs.logs(run.id, tail, LOG_PAGE)
    return render(
        request,
        "run.html",
        visitor,
        **shown,
        lines=lines.items,
        more=len(lines.items) == LOG_PAGE,
        tail=tail,
    )


@router.post("/runs/{id}/retry", dependencies=[Depends(require("start"))])
async def retry_run(request: Request, id: str, services: Asking) -> Response:
    """Retry the run and show the new one. The guard has seen to it that a page of ours asks."""
    form = parse_qs((await request.body()).decode("utf-8", "replace"))
    run = await services.runs.retry(id, "".join(form.get("from", [FAILURE])))
    return RedirectResponse(f"../{run.id}", status_code=303)


@router.get("/runs/{id}/state")
async def state(request: Request, id: str, services: Asking, visitor: Visitor) -> Response:
    """The head of the page: state, facts, attempts, result or error."""
    run = await services.runs.get(id)
    return render(request, "run_state.html", visitor, root=ROOT, **await _state(services, run))


@router.get("/runs/{id}/work")
async def work(
    request: Request,
    id: str,
    services: Asking,
    visitor: Visitor,
    tasks: Annotated[int, Query(ge=1, le=20_000)] = TASKS,
    state: TaskState = None,
) -> Response:
    """Tasks, those in one state alone where that is asked for, metrics and artifacts."""
    state = state or None  # as the page's field says that it is all of them
    check_task_state(state)
    run = await services.runs.get(id)
    return render(request, "run_work.html", visitor, root=ROOT, **await _work(services, run, tasks, state))


@router.get("/runs/{id}/lines")
async def lines(request: Request, id: str, services: Asking, visitor: Visitor, after: After = 0) -> Response:
    """The lines of the log that follow number ``after``."""
    page = await services.runs.logs(id, after, LOG_PAGE)
    return render(
        request, "run_lines.html", visitor, root=ROOT, lines=page.items, more=len(page.items) == LOG_PAGE
    )


@router.get("/runs/{id}/events")
async def events(request: Request, id: str, services: Asking, visitor: Visitor) -> Response:
    """What happened to the run, from the event log."""
    page = await services.runs.events(0, EVENTS, (await services.runs.get(id)).id)
    return render(request, "run_events.html", visitor, root=ROOT, events=page.items)


@router.get("/runs/{id}/calls/{number}/error")
async def call_error(
    id: str, number: Annotated[int, Path(ge=1)], services: Asking, visitor: Visitor
) -> Response:
    """Where in the code the call of this number failed."""
    page = await services.calls.page(id, number - 1, 1)
    for task in page.items:
        if task.number == number and task.error and task.error.get("traceback"):
            return HTMLResponse(escape(str(task.error["traceback"])))
    raise NotFound(f"run {id} has no failed call {number}")


@router.get("/runs/{id}/log.txt")
async def whole_log(id: str, services: Asking, visitor: Visitor) -> Response:
    """The whole log as text."""
    run = await services.runs.get(id)
    return StreamingResponse(
        _log_text(services, run.id),
        media_type="text/plain; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{run.flow}-{run.id}.log"'},
    )


@router.get("/runs/{id}/artifacts/{number}")
async def artifact(id: str, number: int, services: Asking, visitor: Visitor) -> FileResponse:
    """A file of the run: an image is shown, anything else is saved."""
    for saved in await services.runs.artifacts(id):
        if saved.id == number:
            break
    else:
        raise NotFound(f"run {id} has no artifact {number}")
    response = download(services, saved.digest, saved.name.rpartition("/")[2] or saved.name)
    if saved.media_type in SHOWN_IMAGES:
        response.headers["content-type"] = saved.media_type
        disposition = response.headers["content-disposition"]
        response.headers["content-disposition"] = disposition.replace("attachment", "inline", 1)
    response.headers["content-security-policy"] = SANDBOX
    return response


async def tail_start(services: Services, run: str, keep: int = LOG_TAIL) -> int:
    """A number such that about ``keep`` lines follow it, by halving: lines have numbers, no count."""

    async def reaches(number: int) -> bool:
        return bool((await services.runs.logs(run, number, 1)).items)

    if not await reaches(keep):
        return 0
    low, high = keep, keep * 2
    while await reaches(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if await reaches(middle) else (low, middle)
    return high - keep


async def _state(services: Services, run: Run) -> dict[str, Any]:
    attempts = await services.runs.attempts(run.id)
    return {
        "run": run,
        "attempts": attempts,
        "sentence": sentence(run, attempts),
        "ended": is_terminal(RUN, run.state),
        "why": await services.explanations.why(run.id),
    }


async def _work(services: Services, run: Run, tasks: int, state: str | None = None) -> dict[str, Any]:
    if state is None:
        page = await services.calls.failing_first(run.id, 0, tasks)
    else:
        page = await services.calls.page(run.id, 0, tasks, state)
    whole = state is None and page.next is None
    counts = Counter((task.state for task in page.items) if whole else await services.calls.tally(run.id))
    points = await points_of(services, run.id)
    return {
        "run": run,
        "tasks": page.items,
        "needs": needed(page.items),
        "graph": await _drawing(services, run),
        "waits": {task.key: why for task in page.items if (why := services.calls.why_waiting(task))},
        "task_state": state or "",
        "task_counts": {name: counts[name] for name in TASK if name in counts or name == state},
        "more_tasks": tasks + TASKS if page.next else 0,
        "tasks_left": (counts[state] if state else sum(counts.values())) - len(page.items),
        "shown_tasks": tasks,
        "charts": charts(points),
        "bars": bars(page.items, time.time()),
        "artifacts": await services.runs.artifacts(run.id),
        "images": SHOWN_IMAGES,
    }


async def _drawing(services: Services, run: Run) -> Drawing | None:
    """The graph as it is drawn; None where there is nothing to be seen in one."""
    graph = await services.graphs.of(run)
    return drawn(graph) if graph.edges or graph.declared else None


async def points_of(services: Services, run: str) -> list[MetricPoint]:
    points: list[MetricPoint] = []
    after = 0
    for _ in range(METRIC_PAGES_MAX):
        page = await services.runs.metrics(run, after, 1000)
        points.extend(page.items)
        if page.next is None or not page.items:
            break
        after = page.items[-1].number
    return points


async def _log_text(services: Services, run: str) -> AsyncIterator[bytes]:
    after = 0
    while True:
        page = await services.runs.logs(run, after, 1000)
        if not page.items:
            return
        after = page.items[-1].number
        text = "".join(f"{clock(line.at)} {line.level:<7} {line.text}\n" for line in page.items)
        yield text.encode("utf-8", "replace")
