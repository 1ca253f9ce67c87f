"""The page of a run without a browser: its log, calls, graph and events, and what can be done there."""

from __future__ import annotations

import re
from typing import Any

import pytest

from farhand.model import LogLine, TaskRun
from farhand.web.pages import run as run_page

from .fakes import T0, FakeServices, caller, make_run, signed_in


def line(n: int, text: str = "x", attempt: int = 1) -> LogLine:
    return LogLine(n, T0, text, "stdout", "info", None, attempt)


def test_a_log_fragment_holds_the_lines_after_its_cursor(app: Any, services: FakeServices) -> None:
    services.runs.lines = [line(n) for n in range(1, 801)]
    browser = signed_in(app)
    first = browser.get("/runs/0run1/lines?after=0").text
    assert re.findall(r'data-number="(\d+)"', first) == [str(n) for n in range(1, 501)]
    assert "data-more" in first
    rest = browser.get("/runs/0run1/lines?after=500").text
    assert re.findall(r'data-number="(\d+)"', rest)[0] == "501"
    assert "data-more" not in rest


@pytest.mark.anyio
@pytest.mark.parametrize("count", [0, 1, 999, 1000, 1001, 2500, 40_000])
async def test_the_page_opens_with_the_end_of_the_log(services: Any, count: int) -> None:
    services.runs.lines = [line(n) for n in range(1, count + 1)]
    assert await run_page.tail_start(services, "0run1") == max(0, count - run_page.LOG_TAIL)


def test_a_page_of_a_huge_run_stays_small(app: Any, services: FakeServices) -> None:
    services.runs.lines = [line(n, "y" * 10_000) for n in range(1, 5001)]
    services.runs.task_runs = [TaskRun("0run1", f"k{n}", n, "fit", "completed") for n in range(1, 20_001)]
    text = signed_in(app).get("/runs/0run1").text
    assert text.count("<tr>") < 300
    assert len(text) < 3_000_000
    assert "data-more-tasks" in text


def test_the_whole_log_can_be_saved(app: Any, services: FakeServices) -> None:
    services.runs.lines = [line(n, f"line {n}") for n in range(1, 2501)]
    answer = signed_in(app).get("/runs/0run1/log.txt")
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.text.count("\n") == 2500
    assert answer.text.endswith("line 2500\n")


def test_a_viewer_is_not_offered_to_cancel(app: Any, services: FakeServices) -> None:
    services.runs.items["0run1"] = make_run(state="running", ended_at=None)
    assert "Cancel run" in signed_in(app).get("/runs/0run1").text
    browser = caller(app)
    browser.get(f"/{app.state.sessions.link('viewer')}")
    assert "Cancel run" not in browser.get("/runs/0run1").text


def test_the_page_of_a_run_belongs_to_the_runs(app: Any) -> None:
    assert 'href="../" aria-current="true">Runs' in signed_in(app).get("/runs/0run1").text


def test_a_run_without_parameters_says_so(app: Any, services: FakeServices) -> None:
    services.runs.items["0run1"] = make_run(params="{}")
    assert "None was given" in signed_in(app).get("/runs/0run1").text


def test_where_a_call_failed_is_fetched_when_somebody_looks(app: Any, services: FakeServices) -> None:
    services.runs.task_runs = [
        TaskRun("0run1", "a", 1, "load", "completed"),
        TaskRun(
            "0run1",
            "b",
            2,
            "fit",
            "failed",
            attempts=3,
            error={"type": "ValueError", "message": "<no>", "traceback": "in <module>"},
        ),
        TaskRun("0run1", "c", 3, "fit", "failed", error={"type": "E", "message": "untold"}),
    ]
    browser = signed_in(app)
    page = browser.get("/runs/0run1").text
    assert page.count('<details class="failure"') == 1
    assert 'id="failure-2-3"' in page
    assert "in &lt;module&gt;" not in page
    fetched = browser.get("/runs/0run1/calls/2/error")
    assert (fetched.text, fetched.headers["content-type"]) == (
        "in &lt;module&gt;",
        "text/html; charset=utf-8",
    )
    for call in (1, 3, 4):
        assert browser.get(f"/runs/0run1/calls/{call}/error").status_code == 404


def test_a_placed_call_that_waits_says_why_and_names_no_worker(app: Any, services: FakeServices) -> None:
    services.runs.task_runs = [TaskRun("0run1", "k", 1, "fit", "queued", placed="j2")]
    browser = signed_in(app)
    text = browser.get("/runs/0run1/work").text
    assert "waits for label gpu" in text
    assert "server" not in text


def test_an_ended_run_is_retried_from_its_page_and_the_new_one_is_shown(
    app: Any, services: FakeServices
) -> None:
    services.runs.items["0run2"] = make_run("0run2", state="failed", result=None)
    browser = signed_in(app)
    page = browser.get("/runs/0run2").text
    assert 'action="../runs/0run2/retry"' in page
    answer = browser.post(
        "/runs/0run2/retry",
        data={"from": "start"},
        headers={"sec-fetch-site": "same-origin"},
        follow_redirects=False,
    )
    assert answer.status_code == 303
    new = answer.headers["location"].removeprefix("../")
    assert (services.runs.items[new].retry_of, services.runs.items[new].reason) == ("0run2", "start")
    foreign = browser.post("/runs/0run2/retry", headers={"sec-fetch-site": "cross-site"})
    assert foreign.status_code == 403


def test_a_called_flow_links_to_its_caller_and_back_and_is_cancelled_with_it(
    app: Any, services: FakeServices
) -> None:
    services.runs.items["0run3"] = make_run(
        "0run3",
        state="running",
        ended_at=None,
        result=None,
        name="part 3",
        parent="0run1",
        root="0run1",
        key="k",
    )
    services.runs.task_runs = [
        TaskRun(
            "0run1", "k", 1, "part", "running", flow_run="0run3", progress={"at": T0, "done": 1, "total": 4}
        ),
        TaskRun("0run1", "a", 2, "fit", "completed", tags=("slow",)),
        TaskRun("0run1", "b", 3, "judge", "running", needs=("a", "k")),
    ]
    browser = signed_in(app)
    inner, outer = browser.get("/runs/0run3").text, browser.get("/runs/0run1").text
    assert '<a href="../runs/0run1">' in inner
    assert "<h1>part 3</h1>" in inner
    assert "Cancel run" not in inner
    assert '<a href="../runs/0run3">part</a>' in outer
    assert "1 of 4" in outer
    assert '<span class="tag">slow</span>' in outer
    assert "after 1, 2" in outer
    assert 'title="called by run 0run1"' in browser.get("/").text


def test_a_waiting_run_names_the_workers_that_were_considered(app: Any, services: FakeServices) -> None:
    services.runs.items["0run1"] = make_run(state="queued", worker=None, message="waits", ended_at=None)
    text = signed_in(app).get("/runs/0run1").text
    assert "no slot is free" in text


def test_the_events_of_a_run_are_a_fragment(app: Any) -> None:
    assert "worth an event" in signed_in(app).get("/runs/0run1/events").text


def test_the_graph_of_a_declared_flow_is_drawn_with_states_and_can_be_walked(
    app: Any, services: FakeServices
) -> None:
    odd = '<b>"x"\''
    services.runs.task_runs = [TaskRun("0run1", "k", 3, "fit", "running")]
    services.graphs.document = {
        "inputs": ["lr"],
        "nodes": [
            {"id": "fit", "type": "python", "requires": ["lr"], "provides": ["weights"]},
            {"id": odd, "type": "python", "requires": ["weights"]},
        ],
    }
    text = signed_in(app).get("/runs/0run1/work").text
    assert 'href="#call-3" class="node python running" aria-label="fit: running"' in text
    assert '<tr id="call-3">' in text
    assert "<title>weights</title>" in text
    assert 'tabindex="0" class="node python waiting"' in text
    assert odd not in text


def test_a_run_whose_calls_need_nothing_has_no_graph(app: Any, services: FakeServices) -> None:
    services.runs.task_runs = [TaskRun("0run1", "k", 1, "fit", "running")]
    assert "graph" not in signed_in(app).get("/runs/0run1/work").text


def test_attempts_and_calls_lead_to_the_workers_that_had_them(app: Any, services: FakeServices) -> None:
    services.runs.task_runs = [
        TaskRun("0run1", "a", 1, "load", "completed"),
        TaskRun("0run1", "b", 2, "fit", "running", placed="j2", worker="gpu-1"),
        TaskRun("0run1", "c", 3, "fit", "queued", placed="j3"),
    ]
    page = signed_in(app).get("/runs/0run1").text
    attempts, calls = page.partition("<h2>Attempts</h2>")[2].split("<h2>Tasks</h2>")
    assert '<a href="../workers/server">server</a>' in attempts
    assert re.findall(r'<td>(<a href="[^"]*workers/[^<]*</a>|–) ?(?:<span|</td>)', calls) == [
        '<a href="../workers/server">server</a>',
        '<a href="../workers/gpu-1">gpu-1</a>',
        "–",
    ]
