"""Workers over HTTP: what is shown of them, and what people order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from .fakes import FakeServices, caller, problem_of, signed_in

SAME = {"sec-fetch-site": "same-origin"}


def test_a_worker_is_shown_with_a_sentence_and_what_is_in_its_slots(app: Any) -> None:
    client = caller(app, "viewer-secret")
    listed, _ = client.get("/api/v1/workers").json()["items"]
    assert listed == client.get("/api/v1/workers/gpu1").json()
    assert (listed["name"], listed["message"], listed["draining"]) == (
        "gpu1",
        "is there: 1 of 2 slots free",
        False,
    )
    assert [(held["run"], held["flow"]) for held in listed["holds"]] == [("0run1", "train")]


@pytest.mark.parametrize(
    ("method", "path", "body", "order"),
    [
        ("POST", "drain", None, ("gpu1", "drain", "operator")),
        ("POST", "resume", None, ("gpu1", "resume", "operator")),
        ("POST", "forget", None, ("gpu1", "forget", False)),
        ("POST", "forget", {"settle": True}, ("gpu1", "forget", True)),
        ("PATCH", "", {"parallel": 4}, ("gpu1", "slots", 4)),
    ],
)
def test_an_operator_orders_and_a_viewer_does_not(
    app: Any, services: FakeServices, method: str, path: str, body: Any, order: tuple[Any, ...]
) -> None:
    where = f"/api/v1/workers/gpu1/{path}".rstrip("/")
    assert problem_of(caller(app, "viewer-secret").request(method, where, json=body)) == (403, "forbidden")
    assert caller(app, "operator-secret").request(method, where, json=body).status_code == 200
    assert services.operations.orders == [order]


@pytest.mark.parametrize("body", [{}, {"parallel": -1}, {"parallel": "many"}])
def test_slots_are_a_number(app: Any, body: Any) -> None:
    answer = caller(app, "operator-secret").patch("/api/v1/workers/gpu1", json=body)
    assert problem_of(answer) == (422, "invalid_request")


def test_the_event_log_is_there_to_read(app: Any) -> None:
    (event,) = caller(app, "viewer-secret").get("/api/v1/events", params={"kind": "worker."}).json()["items"]
    assert (event["kind"], event["worker"]) == ("worker.attached", "gpu1")


def test_a_workers_page_says_what_it_has_runs_and_did(app: Any, services: FakeServices) -> None:
    page = signed_in(app).get("/workers/gpu1").text
    for words in ("gpu1 is there: 1 of 2 slots free.", "not known", "from the server", "attached from box"):
        assert words in page
    assert 'href="../runs/0run1"' in page
    assert '<rect class="running"' in page
    assert 'id="drain"' in page
    services.workers.items[0] = replace(
        services.workers.items[0],
        drained_by="anna",
        reported={"inventory": {"cpus": 8, "gpus": 1, "ram_mb": None}, "called": "mill"},
    )
    now = signed_in(app).get("/workers/gpu1/now").text
    for words in ("8 of 8 free", "called mill there", 'id="resume"'):
        assert words in now


def test_a_link_to_a_worker_that_was_forgotten_leads_to_what_is_left_of_it(app: Any) -> None:
    answer = signed_in(app).get("/workers/forgotten")
    assert answer.status_code == 200
    assert "forgotten was forgotten; should it come back, it registers again." in answer.text
    assert 'href="../runs/0run1"' in answer.text
    assert signed_in(app).get("/workers/never").status_code == 404


def test_a_viewer_is_offered_no_orders(app: Any) -> None:
    page = caller(app, "viewer-secret").get("/workers/gpu1").text
    assert "gpu1" in page
    assert 'id="drain"' not in page


def test_the_list_leads_to_each_worker_and_says_to_admins_how_to_add_one(app: Any) -> None:
    page = signed_in(app).get("/workers").text
    assert 'href="./workers/gpu1"' in page
    assert "farhand workers invite" in page


def test_the_console_shows_a_drained_worker_as_that(app: Any, services: FakeServices) -> None:
    services.workers.items[0] = replace(services.workers.items[0], drained_by="anna")
    for holds, state in ((services.workers.holds, "draining"), ((), "drained")):
        services.workers.holds = holds
        for page in ("/workers", "/workers/gpu1"):
            assert f'<span class="pill {state}">' in signed_in(app).get(page).text
        listed = caller(app, "viewer-secret").get("/api/v1/workers/gpu1").json()
        assert (listed["draining"], listed["drained"]) == (True, state == "drained")


def test_slots_are_set_in_the_console_and_more_than_there_are_cores_are_warned_of(
    app: Any, services: FakeServices
) -> None:
    browser = signed_in(app)
    page = browser.get("/workers/gpu1").text
    assert 'action="../workers/gpu1/slots"' in page
    assert "are above" not in page
    services.workers.items[0] = replace(
        services.workers.items[0], parallel=3, reported={"inventory": {"cpus": 1}}
    )
    answer = browser.post("/workers/gpu1/slots", data={"slots": "3"}, headers=SAME)
    assert services.operations.orders == [("gpu1", "slots", 3)]
    assert answer.url.path == "/workers/gpu1"
    assert "3 slots are above the 1 core of that machine; the jobs will share them." in answer.text
    for wrong in ("", "-1", "many", "\u0663"):
        assert browser.post("/workers/gpu1/slots", data={"slots": wrong}, headers=SAME).status_code == 400
    assert len(services.operations.orders) == 1


def test_a_viewer_sets_no_slots(app: Any, services: FakeServices) -> None:
    viewer = caller(app, "viewer-secret")
    assert "/slots" not in viewer.get("/workers/gpu1").text
    assert viewer.post("/workers/gpu1/slots", data={"slots": "3"}, headers=SAME).status_code == 403
    assert services.operations.orders == []
