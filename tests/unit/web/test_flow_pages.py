"""The page of a flow without a browser: its form, and what is said where it cannot be started."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from .fakes import FakeServices, caller, signed_in

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
