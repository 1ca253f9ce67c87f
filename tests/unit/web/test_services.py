"""Services over HTTP and in the console: what is told of one, and who may start and stop it."""

from __future__ import annotations

from typing import Any

from .fakes import ADMIN, VIEWER, FakeServices, caller, problem_of, signed_in


def test_a_service_is_told_with_its_address_while_it_is_healthy(app: Any) -> None:
    client = caller(app, VIEWER)
    [found] = client.get("/api/v1/services").json()["items"]
    assert (found["name"], found["state"], found["url"]) == ("llm", "healthy", "http://gpu:8000")
    assert found["spec"]["command"] == ["serve", "{port}"]
    assert client.get("/api/v1/services/llm").json() == found
    [line] = client.get("/api/v1/services/llm/logs").json()["items"]
    assert line["text"] == "listening"
    assert problem_of(client.get("/api/v1/services/none")) == (404, "not_found")


def test_an_operator_stops_and_starts_it_and_a_viewer_does_not(app: Any, services: FakeServices) -> None:
    assert problem_of(caller(app, VIEWER).post("/api/v1/services/llm/stop")) == (403, "forbidden")
    stopped = caller(app, ADMIN).post("/api/v1/services/llm/stop").json()
    assert (stopped["state"], stopped["url"]) == ("stopped", "")
    assert caller(app, ADMIN).post("/api/v1/services/llm/start").json()["state"] == "degraded"
    noted = [(entry.action, entry.outcome) for entry in services.audit.items]
    assert noted == [("stop_service", "refused"), ("stop_service", "done"), ("start_service", "done")]


def test_the_console_lists_services_and_shows_one_with_its_log(app: Any) -> None:
    browser = signed_in(app)
    assert "http://gpu:8000" in browser.get("/services").text
    page = browser.get("/services/llm").text
    assert "listening" in page
    assert 'hx-post="../api/v1/services/llm/stop"' in page
    assert "Stop" in browser.get("/fragments/services/llm").text
    assert "listening" in browser.get("/fragments/services/llm/lines?after=0").text
    assert browser.get("/services/none").status_code == 404
