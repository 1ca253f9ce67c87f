"""Flows, comparing, schedules and projects in a real browser."""

from __future__ import annotations

from typing import Any

import pytest

from farhand.engine.bus import Notice
from farhand.model import MetricPoint, TaskRun
from tests.unit.web.fakes import T0, make_run
from tests.unit.web.served import Served

from .conftest import OpenPage

LONG = "a-rather-long-name.of-something-that-somebody-made"


def test_a_flow_is_found_filled_in_corrected_and_started(console: Served, open_page: OpenPage) -> None:
    flow = console.services.flows.items[0]
    flow.schema["properties"]["depth"] = {"type": "integer", "default": 3}
    page = open_page(console.link())
    page.click("nav >> text=Flows")
    page.click("tbody >> text=train")
    assert page.get_attribute("[aria-current]", "aria-current") == "true"
    assert page.get_attribute("#p-depth", "placeholder") == "3"
    page.fill("#p-depth", "many")
    page.click("text=Start a run >> nth=-1")
    page.wait_for_selector("#e-depth")
    assert page.input_value("#p-depth") == "many"
    assert page.get_attribute("#p-depth", "aria-invalid") == "true"
    page.fill("#p-depth", "")
    page.fill("#p-lr", "0.5")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/0new*")
    page.wait_for_selector("text=Queued")


def test_runs_are_ticked_and_compared(console: Served, open_page: OpenPage) -> None:
    services = console.services
    services.runs.items["0run2"] = make_run("0run2", created_at=T0 + 5, params='{"lr":0.7}')
    services.runs.points = [MetricPoint(n, T0 + n, {"loss": 1.0 / n}, None) for n in (1, 2, 3)]
    page = open_page(console.link())
    compare = page.locator("[data-needs]")
    assert compare.is_disabled()
    page.check("#c-0run1")
    assert compare.is_disabled()
    page.check("#c-0run2")
    services.publish(Notice("run", "0run1", services.runs.items["0run1"]))  # the rows are drawn anew
    page.wait_for_selector("text=Compare (2)")
    compare.click()
    page.wait_for_url("**/compare?run=*")
    assert page.locator("tr.same >> text=state").is_visible()
    page.check("[data-differing]")
    assert not page.locator("tr.same >> text=state").is_visible()
    assert page.locator("tr.differs >> text=lr").is_visible()
    assert page.locator("figure polyline").count() == 2


def test_a_schedule_is_paused_and_resumed(console: Served, open_page: OpenPage) -> None:
    page = open_page(console.link())
    page.click("nav >> text=Schedules")
    page.click("text=Pause")
    page.wait_for_selector(".pill.paused")
    page.click("text=Resume")
    page.wait_for_selector(".pill.active")
    assert page.get_attribute("time[data-when] >> nth=0", "title")


def test_times_to_come_are_told_as_such(console: Served, open_page: OpenPage) -> None:
    page = open_page(console.link())
    times = [(90, "in 2 min"), (7200, "in 2 h"), (30, "in 30 s"), (-120, "2 min ago"), (-1, "just now")]
    assert page.evaluate("times => times.map(seconds => ago(-seconds))", [s for s, _ in times]) == [
        text for _, text in times
    ]


def test_a_project_names_what_cannot_be_offered(console: Served, open_page: OpenPage) -> None:
    page = open_page(console.link())
    page.click("nav >> text=Projects")
    page.wait_for_selector("text=SyntaxError: no")
    assert not page.locator("text=Traceback <b>").is_visible()
    page.focus("summary")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Traceback <b>")


def test_events_are_asked_for_when_they_are_opened(console: Served, open_page: OpenPage) -> None:
    page = open_page(console.link())
    page.goto(f"{console.url}/runs/0run1")
    page.wait_for_selector(".link.on")
    page.click("summary >> text=Events")
    page.wait_for_selector("text=worth an event")


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_buttons_are_for_those_who_may(console: Served, open_page: OpenPage, role: str) -> None:
    console.services.runs.items["0run1"] = make_run(state="failed")
    page = open_page(console.link(role))
    seen: dict[str, bool] = {}
    for path, button in (
        ("runs/0run1", "Retry from failure"),
        ("flows/train", "Start a run"),
        ("schedules", "Pause"),
    ):
        page.goto(f"{console.url}/{path}")
        page.wait_for_selector(".link.on")
        seen[button] = page.locator(f"button >> text={button}").count() > 0
    assert set(seen.values()) == {role == "operator"}, seen


PATHS = ["flows", "flows/train", "compare?run=0run1&run=0run2", "schedules", "projects", "runs/0run1"]


def test_every_page_fits_1280_pixels_in_light_and_dark(console: Served, open_page: OpenPage) -> None:
    services: Any = console.services
    wide = {f"{LONG}-{n}": {"type": "string", "default": "x" * 300} for n in range(3)}
    services.flows.items[0].schema["properties"].update(wide)
    services.runs.items["0run1"] = make_run(worker=LONG, host=LONG, params='{"a":"%s"}' % ("x" * 500))
    services.runs.items["0run2"] = make_run("0run2", worker=LONG, params='{"a":"%s"}' % ("y" * 500))
    services.runs.task_runs = [TaskRun("0run1", "k", 1, LONG, "completed", worker=LONG, started_at=T0)]
    for scheme in ("light", "dark"):
        page = open_page(console.link(), color_scheme=scheme)
        for path in PATHS:
            page.goto(f"{console.url}/{path}")
            page.wait_for_selector(".link.on")
            assert page.evaluate("document.documentElement.scrollWidth") <= 1280, (scheme, path)
