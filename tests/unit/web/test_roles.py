"""2.30: every route against every role, from the one table; and every change leaves an audit entry."""

from __future__ import annotations

import re
from typing import Any

import pytest

from farhand.engine.roles import MAY, MEANINGS, ROLES
from farhand.web.app import create_app
from farhand.web.audit import UNRECORDED
from farhand.web.guard import SAFE_METHODS

from .fakes import FakeServices, caller, problem_of, signed_in
from .routes import Route, routes

ALL = routes(create_app(None))  # type: ignore[arg-type]
GUARDED = [route for route in ALL if not route.open]
CHANGING = [route for route in ALL if route.method not in SAFE_METHODS]


def named(route: Route) -> str:
    return f"{route.method} {route.path}"


def address(route: Route) -> str:
    """A path that names things which exist where they can, and nothing that could end the test's server."""
    known = {"name": "train" if "/flows/" in route.path else "gpu1", "id": "0run1", "jti": "jti0"}
    path = re.sub(r"\{(\w+)\}", lambda match: known.get(match[1], "1"), route.path)
    return path.replace("{path}", "x")


@pytest.mark.fault("2.30")
def test_every_route_is_in_the_table() -> None:
    assert len(GUARDED) > 30
    assert [named(route) for route in GUARDED if len(route.actions) != 1] == []
    assert [named(route) for route in GUARDED if route.actions and route.actions[0] not in MAY] == []
    assert [named(route) for route in ALL if route.open and route.actions] == []


@pytest.mark.fault("2.30")
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("route", GUARDED, ids=named)
def test_a_role_may_do_what_the_table_says_and_nothing_else(
    app: Any, route: Route, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if route.path.endswith("/stream") and role in MAY[route.actions[0]]:
        return  # it would not end; the console's tests read it
    answer = caller(app, f"{role}-secret").request(route.method, address(route))
    if role in MAY[route.actions[0]]:
        refused = answer.status_code == 403 and b"a token of role" in answer.content
        assert not refused, answer.text
        assert answer.status_code != 401
    else:
        assert answer.status_code == 403
        assert f"a token of role {role} may not do this" in answer.text.replace("A token", "a token")


@pytest.mark.fault("2.30")
@pytest.mark.parametrize("route", GUARDED, ids=named)
def test_no_route_answers_nobody(app: Any, route: Route) -> None:
    assert caller(app).request(route.method, address(route)).status_code == 401


def test_every_action_has_its_words() -> None:
    assert MAY.keys() == MEANINGS.keys()


BODIES: dict[str, Any] = {
    "create_token": {"name": "anna", "role": "viewer"},
    "set_secret": {"value": "s3cret-value"},
    "set_variable": {"value": 3},
}


@pytest.mark.parametrize("route", [r for r in CHANGING if r.name not in UNRECORDED and not r.open], ids=named)
def test_every_change_writes_one_audit_entry(app: Any, services: FakeServices, route: Route) -> None:
    client = caller(app, "admin-secret")
    answer = client.request(route.method, address(route), json=BODIES.get(route.name), follow_redirects=False)
    (entry,) = services.audit.items
    assert (entry.action, entry.role, entry.actor) == (route.name, "admin", "admin")
    assert entry.status == answer.status_code
    assert entry.address == "testclient"


@pytest.mark.parametrize("route", [r for r in CHANGING if r.name not in UNRECORDED and not r.open], ids=named)
def test_every_refused_change_writes_one_too(app: Any, services: FakeServices, route: Route) -> None:
    caller(app, "worker-secret").request(route.method, address(route))
    (entry,) = services.audit.items
    assert (entry.action, entry.outcome, entry.actor, entry.jti) == (
        route.name,
        "refused",
        "gpu1",
        "jti-of-worker",
    )


def test_what_writes_no_entry_is_a_route_that_there_is() -> None:
    assert {route.name for route in CHANGING} >= UNRECORDED


def test_looking_writes_nothing(app: Any, services: FakeServices) -> None:
    assert caller(app, "admin-secret").get("/api/v1/runs").status_code == 200
    assert caller(app).post("/api/v1/flows/train/runs").status_code == 401
    assert services.audit.items == []


def test_signing_in_and_out_is_recorded(app: Any, services: FakeServices) -> None:
    own = {"Origin": "http://127.0.0.1:8420"}
    browser = caller(app)
    browser.get(f"/{app.state.sessions.link()}")
    browser.post("/signout", headers=own)
    browser.post("/signin", content="token=viewer-secret", headers=own)
    told = [(entry.action, entry.actor, entry.details) for entry in services.audit.items]
    assert told == [
        ("sign_in", "console", {"by": "link"}),
        ("sign_out", "console", {}),
        ("sign_in", "viewer", {"by": "token"}),
    ]


def test_an_entry_says_what_was_made_and_never_a_value(app: Any, services: FakeServices) -> None:
    client = caller(app, "operator-secret")
    client.post("/api/v1/flows/train/runs", json={"params": {"lr": 1}})
    caller(app, "admin-secret").put("/api/v1/secrets/db", json={"value": "hunter2-hunter2"})
    started, kept = services.audit.items
    assert (started.action, started.subject, started.details) == ("start_run", "train", {"made": "0new1"})
    assert (kept.action, kept.subject) == ("set_secret", "db")
    assert "hunter2" not in repr(services.audit.items)


def test_a_change_that_fails_is_recorded_as_failed(app: Any, services: FakeServices) -> None:
    services.runs.fails = RuntimeError("out of luck")
    answer = caller(app, "admin-secret").post("/api/v1/runs/0run1/cancel")
    assert problem_of(answer) == (500, "internal")
    assert [(e.action, e.outcome, e.status) for e in services.audit.items] == [("cancel_run", "failed", 500)]


def test_an_answer_outlives_an_audit_log_that_cannot_be_written(
    app: Any, services: FakeServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    from farhand.errors import StoreFailed

    async def failing(*_: Any, **__: Any) -> None:
        raise StoreFailed

    monkeypatch.setattr(services.audit, "add", failing)
    assert caller(app, "admin-secret").post("/api/v1/flows/train/runs").status_code == 202


def test_the_audit_log_is_shown_newest_first_and_narrowed(app: Any) -> None:
    admin = caller(app, "admin-secret")
    admin.put("/api/v1/variables/a", json={"value": 1})
    admin.delete("/api/v1/variables/a")
    items = admin.get("/api/v1/audit").json()["items"]
    assert [item["action"] for item in items] == ["delete_variable", "set_variable"]
    items = admin.get("/api/v1/audit", params={"action": "set_variable"}).json()["items"]
    assert [item["subject"] for item in items] == ["a"]


def test_the_console_shows_admins_tokens_names_and_the_audit_log(app: Any, services: FakeServices) -> None:
    admin = caller(app, "admin-secret")
    admin.post("/api/v1/workers/tokens", json={"name": "anna", "role": "viewer", "expires_s": 1e9})
    admin.put("/api/v1/secrets/warehouse", json={"value": "hunter2-hunter2"})
    admin.put("/api/v1/variables/batch-size", json={"value": "a-plain-value"})
    browser = signed_in(app)
    page = browser.get("/access").text
    assert "anna" in page
    assert "warehouse" in page
    assert "batch-size" in page
    assert "hunter2" not in page
    assert "a-plain-value" not in page
    assert "text-of-" not in page
    assert "Revoke" in browser.get("/fragments/tokens").text
    told = browser.get("/audit").text
    for word in ("create token", "set secret", "warehouse", "sign in", "console"):
        assert word in told
    narrowed = browser.get("/audit", params={"action": "set_secret"}).text
    assert "create token" not in narrowed
    assert 'href="./audit"' in narrowed


@pytest.mark.parametrize("role", ["operator", "viewer"])
def test_the_console_hides_from_others_what_they_may_not_see(app: Any, role: str) -> None:
    page = caller(app, f"{role}-secret").get("/").text
    assert "Audit" not in page
    assert ">Access<" not in page
