"""The calls of a run on its page and in the API: which are shown, and how many there are."""

from __future__ import annotations

import re
from typing import Any

import pytest

from farhand.model import TaskRun

from .callers import caller, signed_in
from .fakes import ADMIN, FakeServices


@pytest.fixture
def many(services: FakeServices) -> None:
    """500 calls, the last but one of which failed."""
    services.runs.task_runs = [
        TaskRun("0run1", f"k{n}", n, "fit", "failed" if n == 499 else "completed") for n in range(1, 501)
    ]


def rows(text: str) -> list[int]:
    return [int(number) for number in re.findall(r'id="call-(\d+)"', text)]


@pytest.mark.usefixtures("many")
def test_a_page_of_many_calls_begins_with_what_failed_and_says_how_many_are_left(app: Any) -> None:
    text = signed_in(app).get("/runs/0run1").text
    assert rows(text) == [499, *range(1, 200)]
    assert "300 more; what failed is shown first" in text
    assert ">all 500</button>" in text
    assert ">1 failed</button>" in text
    assert rows(signed_in(app).get("/runs/0run1/work?tasks=600&state=").text) == [*range(1, 501)]


@pytest.mark.usefixtures("many")
def test_a_page_shows_the_calls_of_one_state(app: Any) -> None:
    browser = signed_in(app)
    text = browser.get("/runs/0run1/work?state=failed").text
    assert rows(text) == [499]
    assert "data-more-tasks" not in text
    assert 'data-tasks-state="failed" aria-pressed="true"' in text
    assert 'name="state" value="failed"' in text
    assert "299 more</span>" in browser.get("/runs/0run1/work?state=completed").text
    text = browser.get("/runs/0run1/work?state=running").text
    assert (rows(text), ">0 running</button>" in text) == ([], True)
    assert browser.get("/runs/0run1/work?state=good").status_code == 422


def test_calls_that_are_all_in_one_state_need_no_filter(app: Any, services: FakeServices) -> None:
    services.runs.task_runs = [TaskRun("0run1", "k", 1, "fit", "completed")]
    assert "data-tasks-state" not in signed_in(app).get("/runs/0run1").text


@pytest.mark.usefixtures("many")
def test_the_api_pages_within_one_state_and_counts_them_all(app: Any) -> None:
    api = caller(app, ADMIN)
    assert api.get("/api/v1/runs/0run1/tasks/summary").json()["items"] == [
        {"state": "completed", "count": 499},
        {"state": "failed", "count": 1},
    ]
    page = api.get("/api/v1/runs/0run1/tasks?state=failed&limit=1").json()
    assert ([task["number"] for task in page["items"]], page["next"]) == ([499], None)
    page = api.get("/api/v1/runs/0run1/tasks?failing_first=true&limit=3").json()
    assert ([task["number"] for task in page["items"]], page["next"]) == ([499, 1, 2], "2")
    for wrong in ("state=good", "state=failed&failing_first=true"):
        assert api.get(f"/api/v1/runs/0run1/tasks?{wrong}").status_code == 422
