"""The console's pages without a browser: what they show and where their links lead."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urljoin

import pytest

from farhand.model import LogLine, MetricPoint, TaskRun
from farhand.web.pages.api import takes
from farhand.web.pages.shell import marked, root_of

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


def test_the_way_to_the_root_depends_on_the_depth() -> None:
    assert [root_of(p) for p in ("/", "/workers", "/runs/x", "/runs/x/state")] == [
        "./",
        "./",
        "../",
        "../../",
    ]


def test_a_list_that_fits_has_no_foot(app: Any) -> None:
    assert 'class="foot"' not in signed_in(app).get("/").text


def test_a_command_in_a_message_is_shown_as_one_and_nothing_else_of_it(app: Any) -> None:
    assert marked("try `farhand <i>runs</i>`") == "try <code>farhand &lt;i&gt;runs&lt;/i&gt;</code>"
    assert "`" not in signed_in(app).get("/runs/none").text


def test_the_list_of_runs_keeps_what_was_asked_for(app: Any) -> None:
    text = signed_in(app).get("/?flow=train&text=a%26b&sweep=s1&state=nonsense").text
    assert 'value="a&amp;b"' in text
    assert 'name="sweep" value="s1"' in text
    assert "fragments/runs?flow=train" in text


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
