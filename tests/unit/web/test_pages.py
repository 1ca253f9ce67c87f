"""The console's pages without a browser: what they show and where their links lead."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any
from urllib.parse import urljoin

import pytest

from farhand.model import LogLine, MetricPoint, TaskRun
from farhand.web.pages import run as run_page
from farhand.web.pages.api import takes
from farhand.web.pages.charts import POINTS_MAX, bars, charts, overlays, thin
from farhand.web.pages.shell import marked, root_of
from farhand.web.pages.wording import duration, mebibytes, number, pretty, said, sentence, size

from .fakes import T0, FakeServices, caller, make_run, signed_in


def line(n: int, text: str = "x", attempt: int = 1) -> LogLine:
    return LogLine(n, T0, text, "stdout", "info", None, attempt)


def test_a_stranger_is_asked_to_sign_in(app: Any) -> None:
    for path in ("/", "/runs/0run1", "/workers", "/signin", "/signin?code=guessed"):
        answer = caller(app).get(path)
        assert answer.status_code == 401
        assert "farhand signin" in answer.text
        assert "0run1" not in answer.text


PAGES = [
    "/",
    "/?state=completed&text=x",
    "/runs/0run1",
    "/workers",
    "/workers/gpu1",
    "/flows",
    "/flows/train",
    "/flows/train?like=0run1",
    "/compare",
    "/compare?run=0run1&run=0run2",
    "/schedules",
    "/projects",
    "/api",
]


@pytest.mark.parametrize("path", PAGES)
def test_every_link_and_file_of_a_page_is_relative_and_there(
    app: Any, services: FakeServices, path: str
) -> None:
    services.runs.items["0run2"] = make_run("0run2", retry_of="0run1", sweep="s", host="box")
    services.runs.points = [MetricPoint(1, T0, {"loss": 1.0}, None)]
    browser = signed_in(app)
    text = browser.get(path).text
    links = re.findall(r'(?:href|src|hx-get|sse-connect|action)="([^"]*)"', text)
    assert links
    for link in links:
        assert not link.startswith(("/", "http")), link
        target = urljoin(f"http://127.0.0.1:8420/base{path}", link.replace("&amp;", "&"))
        assert target.startswith("http://127.0.0.1:8420/base/"), (path, link)
        here = target.replace("/base/", "/", 1)
        posted = here.endswith(("/signout", "/start", "/pause", "/retry", "/slots"))
        if not posted and "stream" not in here:
            assert browser.get(here).status_code == 200, (path, link)


@pytest.mark.parametrize("path", [*PAGES, "/signin"])
def test_no_page_carries_script_or_style_of_its_own(app: Any, services: FakeServices, path: str) -> None:
    services.runs.items["0run2"] = make_run("0run2")
    text = signed_in(app).get(path).text
    assert not re.search(r"<script(?![^>]*\bsrc=)", text)
    assert "<style" not in text
    assert not re.search(r"\son\w+=|\sstyle=", text)


def test_what_users_wrote_is_shown_as_text(app: Any, services: FakeServices) -> None:
    evil = "<img src=x onerror=alert(1)>"
    error = {"type": evil, "message": evil, "traceback": evil}
    services.runs.items["0run1"] = make_run(
        flow=evil, state="failed", message=evil, params=f'{{"a":"{evil}"}}', result=None, error=error
    )
    services.runs.lines = [line(1, evil)]
    services.runs.task_runs = [TaskRun("0run1", "k", 1, evil, "failed", error=error)]
    services.runs.points = [MetricPoint(1, T0, {evil: 1.0}, None)]
    browser = signed_in(app)
    for path in ("/", "/runs/0run1"):
        assert evil not in browser.get(path).text


def test_fragments_link_from_the_page_they_are_put_into(app: Any) -> None:
    browser = signed_in(app)
    assert 'href="./runs/0run1"' in browser.get("/fragments/runs").text
    assert "../runs/0run1" not in browser.get("/fragments/runs").text
    assert browser.get("/runs/0run1/work").status_code == 200
    assert browser.get("/fragments/workers").status_code == 200


def test_a_page_that_is_not_there_is_a_page_for_a_browser_and_a_problem_for_a_program(app: Any) -> None:
    browser = signed_in(app)
    page = browser.get("/runs/a/b", headers={"Accept": "text/html,*/*"})
    assert (page.status_code, "There is no page /runs/a/b." in page.text) == (404, True)
    assert 'href="../../"' in page.text
    for path, accept in (("/runs/a/b", "*/*"), ("/api/v1/nothing", "text/html")):
        answer = browser.get(path, headers={"Accept": accept})
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


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


def test_the_way_to_the_root_depends_on_the_depth() -> None:
    assert [root_of(p) for p in ("/", "/workers", "/runs/x", "/runs/x/state")] == [
        "./",
        "./",
        "../",
        "../../",
    ]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"state": "queued", "message": "gpu1 is busy"}, "Queued: gpu1 is busy."),
        ({"state": "running", "worker": "gpu1", "attempt": 2}, "Running on gpu1, attempt 2."),
        ({"state": "running", "worker": "gpu1", "message": "running on gpu1"}, "Running on gpu1."),
        (
            {
                "state": "running",
                "worker": "box",
                "message": "running on box; fit waits for gpu",
                "attempt": 2,
            },
            "Running on box, attempt 2; fit waits for gpu.",
        ),
        (
            {"state": "starting", "worker": "gpu1", "message": "handed to gpu1"},
            "Starting on gpu1: handed to gpu1.",
        ),
        ({"state": "failed", "message": "long "}, "Failed: long."),
        ({"state": "completed", "message": "x"}, "Completed on server."),
        ({"state": "crashed", "reason": "worker_lost"}, "Crashed: worker lost."),
        ({"state": "cancelled", "reason": "cancelled", "message": ""}, "Cancelled."),
    ],
)
def test_a_state_is_told_in_a_sentence(changes: dict[str, Any], text: str) -> None:
    assert sentence(replace(make_run(), **changes), []) == text


def test_numbers_are_told_as_people_read_them() -> None:
    assert [duration(s) for s in (0.0123, 3.21, 245, 7800, 273_600)] == [
        "12 ms",
        "3.2 s",
        "4 min 05 s",
        "2 h 10 min",
        "3 d 4 h",
    ]
    assert [size(n) for n in (5, 2048, 5 * 1024**3)] == ["5 B", "2.0 KiB", "5.0 GiB"]
    assert number(0.123456) == "0.1235"
    assert [mebibytes(24152), mebibytes(512)] == ["23.6 GiB", "512.0 MiB"]
    assert said("you are out.") == "You are out."


def test_json_is_shown_on_as_few_lines_as_can_be_read() -> None:
    assert pretty('{"a":[1,2]}') == '{"a": [1, 2]}'
    assert pretty('{"a":[1,2],"b":"%s"}' % ("x" * 60)).splitlines()[1] == '  "a": [1, 2],'
    assert pretty("no json") == "no json"
    assert pretty("[" + "1," * 30_000 + "1]").endswith("in all)")


def test_a_chart_keeps_its_spikes_when_it_is_thinned() -> None:
    points = [MetricPoint(n, T0 + n, {"loss": 100.0 if n == 5000 else 1.0}, None) for n in range(10_000)]
    (chart,) = charts(points)
    assert (chart.high, chart.low, chart.count) == (100.0, 1.0, 10_000)
    assert len(chart.line.split()) <= 2 * POINTS_MAX
    assert min(float(p.split(",")[1]) for p in chart.line.split()) == 4.0


def test_a_chart_of_equal_or_odd_values_is_drawn_all_the_same() -> None:
    flat = charts([MetricPoint(n, T0, {"a": 2.0}, None) for n in range(3)])[0]
    assert flat.line.count(",") == 3
    odd: Any = {"a": float("nan"), "b": "Infinity", "c": 1}
    assert [chart.name for chart in charts([MetricPoint(1, T0, odd, None)])] == ["c"]
    assert thin([(1.0, 1.0)]) == [(1.0, 1.0)]


def test_a_list_that_fits_has_no_foot(app: Any) -> None:
    assert 'class="foot"' not in signed_in(app).get("/").text


def test_the_page_of_a_run_belongs_to_the_runs(app: Any) -> None:
    assert 'href="../" aria-current="true">Runs' in signed_in(app).get("/runs/0run1").text


def test_a_run_without_parameters_says_so(app: Any, services: FakeServices) -> None:
    services.runs.items["0run1"] = make_run(params="{}")
    assert "None was given" in signed_in(app).get("/runs/0run1").text


def test_a_command_in_a_message_is_shown_as_one_and_nothing_else_of_it(app: Any) -> None:
    assert marked("try `farhand <i>runs</i>`") == "try <code>farhand &lt;i&gt;runs&lt;/i&gt;</code>"
    assert "`" not in signed_in(app).get("/runs/none").text


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


SAME = {"sec-fetch-site": "same-origin"}


def test_a_run_is_started_from_its_flows_page(app: Any, services: FakeServices) -> None:
    browser = signed_in(app)
    key = re.search(r'name="key" value="(\w+)"', browser.get("/flows/train").text)
    assert key is not None
    sent = {"p.lr": "0.5", "key": key[1]}
    answer = browser.post("/flows/train/start", data=sent, headers=SAME, follow_redirects=False)
    assert answer.status_code == 303
    run = services.runs.items[answer.headers["location"].removeprefix("../../runs/")]
    assert (run.flow, run.idempotency_key) == ("train", key[1])


def test_what_cannot_be_started_comes_back_with_the_error_at_its_field(
    app: Any, services: FakeServices
) -> None:
    services.flows.items[0].schema["properties"]["depth"] = {"type": "integer"}
    answer = signed_in(app).post("/flows/train/start", data={"p.depth": "many", "p.lr": "1"}, headers=SAME)
    assert answer.status_code == 422
    assert re.search(r'id="p-depth"[^>]*value="many"[^>]*aria-describedby="e-depth"', answer.text)
    assert re.search(r'id="e-depth" role="alert">The flow has no such parameter\.', answer.text)
    assert 'action="../../flows/train/start"' in answer.text
    assert len(services.runs.items) == 1


def test_a_viewer_sees_parameters_in_place_of_the_form(app: Any) -> None:
    browser = caller(app)
    browser.get(f"/{app.state.sessions.link('viewer')}")
    text = browser.get("/flows/train").text
    assert "Start a run" not in text
    assert "lr" in text
    assert browser.post("/flows/train/start", headers=SAME).status_code == 403
    retry = browser.get("/runs/0run1").text
    assert "Retry" not in retry


def test_a_flow_whose_code_is_gone_says_so_and_has_no_form(app: Any, services: FakeServices) -> None:
    services.flows.items[0] = replace(services.flows.items[0], present=False)
    browser = signed_in(app)
    assert "its code is gone" in browser.get("/flows").text
    assert "Start a run" not in browser.get("/flows/train").text


def test_runs_are_compared_the_oldest_first(app: Any, services: FakeServices) -> None:
    services.runs.items["0run2"] = make_run("0run2", created_at=T0 + 9, params='{"lr":0.7}')
    services.runs.points = [MetricPoint(n, T0 + n, {"loss": 1.0 / n}, None) for n in (1, 2)]
    text = signed_in(app).get("/compare?run=0run2&run=0run1&run=0run2").text
    assert text.index("runs/0run1") < text.index("runs/0run2")
    assert re.search(r'class="differs"><th scope="row">lr .*?<td>0\.1</td>\s*<td>0\.7</td>', text, re.DOTALL)
    assert 'class="same"><th scope="row">state' in text
    assert text.count('<polyline class="s1"') == 1


def test_a_series_of_a_single_point_is_compared_as_a_point(app: Any, services: FakeServices) -> None:
    services.runs.items["0run2"] = make_run("0run2")
    services.runs.points = [MetricPoint(1, T0, {"mean": 2.5}, None)]
    page = signed_in(app).get("/compare?run=0run1&run=0run2").text
    assert re.findall(r'<circle class="(s\d)"', page) == ["s0", "s1"]
    assert "<polyline" not in page


def test_one_run_is_no_comparison(app: Any) -> None:
    assert "Two runs or more" in signed_in(app).get("/compare?run=0run1").text


def test_the_list_of_runs_keeps_what_was_asked_for(app: Any) -> None:
    text = signed_in(app).get("/?flow=train&text=a%26b&sweep=s1&state=nonsense").text
    assert 'value="a&amp;b"' in text
    assert 'name="sweep" value="s1"' in text
    assert "fragments/runs?flow=train" in text


def test_a_waiting_run_names_the_workers_that_were_considered(app: Any, services: FakeServices) -> None:
    services.runs.items["0run1"] = make_run(state="queued", worker=None, message="waits", ended_at=None)
    text = signed_in(app).get("/runs/0run1").text
    assert "no slot is free" in text


def test_the_events_of_a_run_are_a_fragment(app: Any) -> None:
    assert "worth an event" in signed_in(app).get("/runs/0run1/events").text


def test_bars_say_when_a_call_was_under_way() -> None:
    tasks = [
        TaskRun("r", "a", 1, "a", "completed", started_at=T0, ended_at=T0 + 5),
        TaskRun("r", "b", 2, "b", "running", started_at=T0 + 5),
        TaskRun("r", "c", 3, "c", "queued"),
    ]
    found = bars(tasks, T0 + 10)
    assert (found["a"].begin, found["a"].width, found["b"].begin) == (0, 49.5, 49.5)
    assert "c" not in found
    assert bars([], T0) == {}


def test_series_of_several_runs_share_a_scale_and_begin_together() -> None:
    first = [MetricPoint(n, T0 + n, {"loss": float(n)}, None) for n in range(3)]
    late = [MetricPoint(n, T0 + 500 + n, {"loss": float(n), "own": 1.0}, None) for n in range(3)]
    loss, own = overlays([first, late])
    assert loss.lines[0] == loss.lines[1]
    assert (loss.low, loss.high, loss.seconds) == (0.0, 2.0, 2.0)
    assert (own.lines[0], bool(own.lines[1])) == ("", True)


def test_the_page_of_the_api_shows_every_route_with_its_parameters_body_and_answers(app: Any) -> None:
    text = signed_in(app).get("/api").text
    for path in app.openapi()["paths"]:
        assert f"<code>{path}</code>" in text
    start = text[text.index("/api/v1/flows/{name}/runs</code>") :]
    start = start[: start.index("</details>")]
    for part in (
        "<code>name</code>",
        "<code>params</code>",
        "<code>idempotency_key</code>",
        "RunView",
        "202",
    ):
        assert part in start
    assert "https://" not in text


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ({"$ref": "#/components/schemas/Page_Flow_"}, "page of Flow"),
        ({"type": "array", "items": {"type": "string"}}, "list of string"),
        ({"anyOf": [{"type": "number"}, {"type": "null"}]}, "number or null"),
        ({"enum": ["a", "b"]}, "'a' or 'b'"),
        ({}, "any JSON"),
    ],
)
def test_a_schema_is_told_in_words(shape: dict[str, Any], words: str) -> None:
    assert takes(shape) == words


def test_the_workers_page_shows_what_was_asked_of_provisioners_and_what_is_wrong(app: Any) -> None:
    for path in ("/workers", "/fragments/workers"):
        page = signed_in(app).get(path).text
        assert "hpc/gpu-small" in page
        assert "Slurm job 4242" in page
        assert "PENDING: Priority" in page
        assert "provisioners.json is no JSON" in page


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
