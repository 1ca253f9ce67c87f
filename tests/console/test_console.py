"""The console in a real browser, over services that live in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from farhand.engine.bus import Notice
from farhand.model import Artifact, LogLine, MetricPoint, TaskRun, Worker
from tests.unit.web.fakes import T0, FakeServices, make_run
from tests.unit.web.served import Served, served

from .conftest import OpenPage


def line(number: int, attempt: int = 1) -> LogLine:
    return LogLine(number, T0 + number, f"line {number}", "stdout", "info", None, attempt)


def running_run(services: FakeServices) -> None:
    services.runs.items["0run1"] = make_run(state="running", ended_at=None, result=None)


def numbers(page: Any) -> list[int]:
    return page.eval_on_selector_all("#log .line", "lines => lines.map(line => Number(line.dataset.number))")


def test_a_new_run_appears_in_the_list_by_itself(console: Served, open_page: OpenPage) -> None:
    page = open_page(console.link())
    assert urlsplit(page.url).path == "/"
    assert page.locator("tbody tr").count() == 1
    console.services.runs.items["0run2"] = make_run("0run2", flow="newcomer")
    console.services.publish(Notice("run", "0run2", console.services.runs.items["0run2"]))
    page.wait_for_selector("text=newcomer")
    assert page.locator("tbody tr").count() == 2


def test_the_last_of_a_burst_of_news_shows_in_a_list_that_is_asked_for_seldom(
    console: Served, open_page: OpenPage
) -> None:
    page = open_page(console.link())
    with page.expect_response("**/fragments/workers"):  # once, when its stream opens
        page.goto(f"{console.url}/workers")
    news = "htmx.trigger('[data-live]', 'sse:run')"
    with page.expect_response("**/fragments/workers"):
        page.evaluate(news)
    console.services.workers.items = [Worker("newcomer", "online", (), 2, "i", "vm", "3.12.1", "0.1.0")]
    page.evaluate(news)
    page.wait_for_selector("text=newcomer")


def test_a_run_is_watched_until_it_ends(console: Served, open_page: OpenPage) -> None:
    services = console.services
    running_run(services)
    page = open_page(console.link())
    page.click("tbody >> text=train")
    page.wait_for_selector(".link.on")
    assert "Running on server." in page.inner_text(".sentence")
    services.runs.task_runs = [TaskRun("0run1", "k", 1, "fit", "running", index=3)]
    services.runs.points = [MetricPoint(1, T0, {"loss": 0.25}, None)]
    services.runs.lines = [line(1)]
    services.publish(Notice("logs", "0run1"))
    page.wait_for_selector("text=fit[3]")
    page.wait_for_selector("figure >> text=0.25")
    page.wait_for_selector("text=line 1")
    services.runs.items["0run1"] = make_run()
    services.publish(Notice("run", "0run1", make_run()))
    page.wait_for_selector("text=Completed on server.")
    assert page.locator("text=Cancel run").count() == 0


def test_log_lines_come_once_and_in_order_however_fast_they_are(console: Served, open_page: OpenPage) -> None:
    services = console.services
    running_run(services)
    services.runs.lines = [line(n) for n in range(1, 701)]
    page = open_page(console.link())
    page.goto(f"{console.url}/runs/0run1")
    page.wait_for_selector(".link.on")
    for n in range(701, 1501):
        services.runs.lines.append(line(n))
        services.publish(Notice("logs", "0run1"))
    page.wait_for_selector('[data-number="1500"]', state="attached")
    assert numbers(page) == list(range(1, 1501))
    at_end = "log => log.scrollHeight - log.scrollTop - log.clientHeight < 24"
    assert page.eval_on_selector("#log", at_end)


def test_what_happened_while_the_stream_was_down_is_there_after_it(
    console: Served, open_page: OpenPage
) -> None:
    services = console.services
    running_run(services)
    page = open_page(console.link())
    page.goto(f"{console.url}/runs/0run1")
    page.wait_for_selector(".link.on")
    streams = "**/api/v1/stream*"
    page.route(streams, lambda route: route.abort())
    assert services.bus.loop is not None
    services.bus.loop.call_soon_threadsafe(services.bus.close)
    page.wait_for_selector(".link:not(.on)")
    services.runs.lines = [line(1), line(2)]
    services.bus.__init__()
    page.unroute(streams)
    page.wait_for_selector(".link.on", timeout=20_000)
    page.wait_for_selector("text=line 2")
    assert numbers(page) == [1, 2]


def test_a_reader_who_scrolled_up_is_left_in_peace(console: Served, open_page: OpenPage) -> None:
    services = console.services
    running_run(services)
    services.runs.lines = [line(n) for n in range(1, 201)]
    page = open_page(console.link())
    page.goto(f"{console.url}/runs/0run1")
    page.wait_for_selector(".link.on")
    page.eval_on_selector("#log", "log => { log.scrollTop = 0; }")
    page.wait_for_selector("[data-follow]:not(:checked)")
    services.runs.lines.append(line(201))
    services.publish(Notice("logs", "0run1"))
    page.wait_for_selector('[data-number="201"]', state="attached")
    assert page.eval_on_selector("#log", "log => log.scrollTop") == 0


def test_every_kind_of_line_is_one_line_high(console: Served, open_page: OpenPage) -> None:
    kinds = [("stdout", "info"), ("stderr", "info"), ("log", "warning"), ("log", "error"), ("log", "debug")]
    console.services.runs.lines = [
        LogLine(n, T0, "text", stream, level, None, 1) for n, (stream, level) in enumerate(kinds, 1)
    ]
    page = open_page(console.link())
    page.goto(f"{console.url}/runs/0run1")
    page.wait_for_selector(".link.on")
    heights = page.eval_on_selector_all("#log .line", "lines => lines.map(line => line.offsetHeight)")
    assert len(heights) == len(kinds)
    assert max(heights) - min(heights) <= 1


def test_a_huge_run_opens_fast_and_stays_small(console: Served, open_page: OpenPage) -> None:
    """20,000 tasks and 50,000 lines (B146, B148): the end of the log, and as many rows as one can read."""
    services = console.services
    services.runs.lines = [line(n) for n in range(1, 50_001)]
    services.runs.task_runs = [TaskRun("0run1", f"k{n}", n, "fit", "completed") for n in range(1, 20_001)]
    page = open_page(console.link())
    page.goto(f"{console.url}/runs/0run1")
    page.wait_for_selector('[data-number="50000"]', state="attached")
    assert numbers(page) == list(range(49_001, 50_001))
    assert page.locator("tr").count() < 300
    timing = "() => performance.getEntriesByType('paint')[0].startTime"
    assert page.evaluate(timing) < 3000
    assert page.evaluate("() => performance.memory.usedJSHeapSize") < 300e6
    page.click("text=Show more")
    page.wait_for_function("() => document.querySelectorAll('tr').length > 400")


def test_a_run_is_cancelled_from_its_page(console: Served, open_page: OpenPage) -> None:
    running_run(console.services)
    page = open_page(console.link())
    page.goto(f"{console.url}/runs/0run1")
    page.wait_for_selector(".link.on")
    page.on("dialog", lambda dialog: dialog.accept())
    with page.expect_response("**/cancel") as answer:
        page.click("text=Cancel run")
    assert answer.value.status == 202
    assert console.services.runs.items["0run1"].state == "cancelling"


def test_nothing_is_asked_while_nothing_happens(console: Served, open_page: OpenPage) -> None:
    page = open_page(console.link())
    page.wait_for_load_state("load")
    page.wait_for_function("() => !document.querySelector('.htmx-request')")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    # That something does not happen can only be seen by giving it the time to.
    page.wait_for_timeout(2500)
    assert asked == []


def test_every_request_stays_below_the_base_path(tmp_path: Path, open_page: OpenPage) -> None:
    """B116: pages, files, fragments, streams, redirects and cookies, behind a proxy that keeps the prefix."""
    services = FakeServices(tmp_path)
    running_run(services)
    with served(services, "/x/y") as running:
        page = open_page(running.link())
        asked: list[str] = []
        page.on("request", lambda request: asked.append(urlsplit(request.url).path))
        page.reload()
        page.wait_for_selector(".link.on")
        page.click("tbody >> text=train")
        page.wait_for_selector(".link.on")
        page.click("text=Workers")
        page.wait_for_selector("text=gpu1")
        page.wait_for_selector(".link.on")
        assert page.context.cookies()[0]["path"] == "/x/y"
        page.click("text=Sign out")
        page.wait_for_selector("text=You are signed out.")
    assert len(asked) > 10
    assert [path for path in asked if not path.startswith("/x/y/")] == []


def test_the_keyboard_reaches_a_run(console: Served, open_page: OpenPage) -> None:
    page = open_page(console.link())
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "train":
            break
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/0run1")


@pytest.mark.parametrize("path", ["", "runs/0run1", "workers"])
def test_a_page_fits_1280_pixels_in_light_and_dark(console: Served, open_page: OpenPage, path: str) -> None:
    long = "a-rather-long-worker-name.of-a-lab.example.org"
    console.services.workers.items = [
        Worker(long, "online", ("gpu", "cuda12", "zone=eu-central"), 8, "i", long, "3.12.1", "0.1.0")
    ]
    console.services.runs.items["0run1"] = make_run(worker=long, message="x" * 500, state="failed")
    grounds: list[str] = []
    for scheme in ("light", "dark"):
        page = open_page(console.link(), color_scheme=scheme)
        page.goto(f"{console.url}/{path}")
        page.wait_for_selector(".link.on")
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
        grounds.append(page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))
    assert grounds[0] != grounds[1]


def test_a_script_in_an_artifact_does_not_run(console: Served, open_page: OpenPage) -> None:
    svg = b"<svg xmlns='http://www.w3.org/2000/svg'><script>document.documentElement.id='ran'</script></svg>"
    digest = console.services.blobs.put_bytes(svg)
    console.services.runs.saved = [Artifact(1, "0run1", "a.svg", digest, len(svg), "image/svg+xml", T0)]
    page = open_page(console.link())
    page.goto(f"{console.url}/runs/0run1")
    page.wait_for_selector(".pictures img")
    viewer = page.context.new_page()
    viewer.goto(f"{console.url}/runs/0run1/artifacts/1")
    assert viewer.evaluate("document.documentElement.id") == ""
