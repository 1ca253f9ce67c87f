"""Schedules and projects over the API and in the console."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from .fakes import OPERATOR, T0, VIEWER, FakeServices, caller, problem_of, signed_in

OFFER = {
    "bundle": "sha256:b", "size": 10, "files": 1,
    "flows": [
        {
            "name": "etl", "entry": "m:etl", "description": "", "schema": {}, "file": "m.py",
            "ask": {"labels": [], "policy": "require", "runs_on": "any"}, "settings": {},
            "schedules": [{"spec": {"kind": "every", "seconds": 60, "anchor": 0}, "params": {}}],
        }
    ],
}  # fmt: skip


def test_a_schedule_says_what_it_did_and_what_comes(client: TestClient) -> None:
    (shown,) = client.get("/api/v1/schedules").json()["items"]
    assert shown == client.get("/api/v1/schedules/train").json()
    assert (shown["state"], shown["when"], shown["zone"]) == (
        "active", "0 6 * * * in Europe/Berlin", "Europe/Berlin",
    )  # fmt: skip
    assert (shown["params"], shown["next"], shown["last"]["late"]) == ({"lr": 0.1}, [T0 + 60], True)
    assert client.get("/api/v1/schedules/train.0a/fires").json()["items"][0]["run"] == "0run1"
    assert problem_of(client.get("/api/v1/schedules/nope")) == (404, "not_found")


def test_an_operator_pauses_and_resumes_and_a_viewer_may_not(app: Any) -> None:
    operator = caller(app, OPERATOR)
    assert operator.post("/api/v1/schedules/train.0a/pause").json()["state"] == "paused"
    assert operator.post("/api/v1/schedules/train.0a/resume").json()["state"] == "active"
    assert problem_of(caller(app, VIEWER).post("/api/v1/schedules/train.0a/pause")) == (403, "forbidden")


def test_a_project_is_deployed_by_an_operator(app: Any, services: FakeServices) -> None:
    answer = caller(app, OPERATOR).put("/api/v1/projects/team", json=OFFER)
    assert (answer.status_code, answer.json()["origin"]) == (200, "deployed")
    ((name, offer, place),) = services.projects.deployed
    assert (name, offer.flows[0].name, offer.flows[0].schedules[0].spec["seconds"]) == ("team", "etl", 60)
    assert place.startswith("operator at ")
    assert problem_of(caller(app, VIEWER).put("/api/v1/projects/team", json=OFFER)) == (403, "forbidden")
    wrong = caller(app, OPERATOR).put("/api/v1/projects/team", json={"flows": 1})
    assert problem_of(wrong) == (422, "invalid_request")


def test_what_cannot_be_offered_is_told(client: TestClient) -> None:
    (project,) = client.get("/api/v1/projects").json()["items"]
    assert project == client.get("/api/v1/projects/default").json()
    assert (project["errors"][0]["file"], project["left_out"][0]["size"]) == ("broken.py", 2**30)


def test_the_console_shows_schedules_and_lets_them_be_paused(app: Any, services: FakeServices) -> None:
    browser = signed_in(app)
    text = browser.get("/schedules").text
    assert "0 6 * * * in Europe/Berlin" in text
    assert ">late</span>" in text
    assert 'action="./schedules/train.0a/pause"' in text
    answer = browser.post("/schedules/train.0a/pause", headers={"origin": "http://127.0.0.1:8420"})
    assert (answer.url.path, services.schedules.item.state) == ("/schedules", "paused")
    assert "Resume" in browser.get("/fragments/schedules").text
    browser.post("/schedules/train.0a/resume", headers={"origin": "http://127.0.0.1:8420"})
    assert services.schedules.item.state == "active"


@pytest.mark.parametrize("path", ["/projects", "/fragments/projects"])
def test_the_console_names_what_is_wrong_with_a_project(app: Any, path: str) -> None:
    text = signed_in(app).get(path).text
    assert "<b>broken.py</b>: SyntaxError: no" in text
    assert "Traceback &lt;b&gt;" in text
    assert "big.bin is left out: 1.0 GiB" in text
