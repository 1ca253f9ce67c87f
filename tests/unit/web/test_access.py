"""Who is let in, by which credential, and what their role may do."""

from __future__ import annotations

from typing import Any

import pytest

from farhand.engine.roles import Identity
from farhand.errors import Forbidden
from farhand.web.access import MAY, Sessions, check
from farhand.web.settings import WebSettings

from .fakes import ADMIN, OPERATOR, VIEWER, WORKER, FakeServices, caller, problem_of, signed_in

READS = [
    "/api/v1/runs",
    "/api/v1/runs/0run1",
    "/api/v1/flows",
    "/api/v1/workers",
    "/api/v1/workers/gpu1",
    "/api/v1/workers/tokens",
    "/api/v1/workers/runtime",
    "/api/v1/stream",
    "/api/v1/artifacts/sha256:" + "0" * 64,
]


@pytest.mark.parametrize("path", READS)
def test_nothing_is_said_without_a_credential(app: Any, path: str) -> None:
    answer = caller(app).get(path)
    assert problem_of(answer) == (401, "unauthorized")
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_wrong_token_is_refused_with_its_reason(app: Any) -> None:
    answer = caller(app, "made-up").get("/api/v1/runs")
    assert problem_of(answer) == (401, "unauthorized")
    assert "not one of this server's" in answer.json()["detail"]


def test_a_wrong_token_is_refused_even_beside_a_good_cookie(app: Any) -> None:
    browser = signed_in(app)
    assert browser.get("/api/v1/runs").status_code == 200
    assert browser.get("/api/v1/runs", headers={"Authorization": "Bearer made-up"}).status_code == 401


@pytest.mark.parametrize("cookies", ["{name}=forged; {name}={good}", "{name}={good}; a=b; {name}=forged"])
def test_a_forged_cookie_beside_a_good_one_signs_nobody_out(app: Any, cookies: str) -> None:
    """A page of a host beside ours may set one for both."""
    name, good = next(iter(signed_in(app).cookies.items()))
    header = cookies.format(name=name, good=good)
    assert caller(app, Cookie=header).get("/api/v1/runs").status_code == 200


def test_another_scheme_than_bearer_is_refused(app: Any) -> None:
    answer = caller(app, Authorization="Basic YTpi").get("/api/v1/runs")
    assert problem_of(answer) == (401, "unauthorized")


@pytest.mark.parametrize(
    ("token", "method", "path", "allowed"),
    [
        (VIEWER, "GET", "/api/v1/runs", True),
        (VIEWER, "POST", "/api/v1/flows/train/runs", False),
        (OPERATOR, "POST", "/api/v1/flows/train/runs", True),
        (OPERATOR, "GET", "/api/v1/workers/tokens", False),
        (ADMIN, "GET", "/api/v1/workers/tokens", True),
        (ADMIN, "GET", "/api/v1/workers/runtime", True),
        (WORKER, "GET", "/api/v1/workers/runtime", True),
        (WORKER, "GET", "/api/v1/runs", False),
        (WORKER, "POST", "/api/v1/flows/train/runs", False),
        (WORKER, "POST", "/api/v1/signin-links", False),
        (VIEWER, "POST", "/api/v1/runs/0run1/cancel", False),
    ],
)
def test_a_role_may_do_what_the_table_says(
    app: Any, token: str, method: str, path: str, allowed: bool
) -> None:
    answer = caller(app, token).request(method, path)
    if allowed:
        assert answer.is_success
    else:
        assert problem_of(answer) == (403, "forbidden")


def test_every_action_has_somebody_who_may_do_it() -> None:
    roles = {"admin", "operator", "viewer", "worker"}
    for action, allowed in MAY.items():
        assert allowed, action
        assert allowed <= roles
        for role in roles - allowed:
            with pytest.raises(Forbidden, match=role):
                check(Identity(role, "x"), action)


def test_health_needs_no_credential(app: Any) -> None:
    assert caller(app).get("/healthz").json() == {"status": "ok"}
    assert caller(app).get("/readyz").json() == {"status": "ready"}


def test_a_link_works_once() -> None:
    sessions = Sessions(WebSettings())
    code = sessions.link().partition("code=")[2]
    visitor = sessions.redeem(code)
    assert visitor == Identity("admin", "console")
    assert sessions.redeem(code) is None
    assert sessions.open(sessions.seal(visitor)) == visitor


def test_a_link_and_a_session_end_with_their_time() -> None:
    now = [1000.0]
    sessions = Sessions(WebSettings(link_s=10, session_s=100), lambda: now[0])
    late = sessions.link().partition("code=")[2]
    cookie = sessions.seal(Identity("admin", "console"))
    now[0] += 11
    assert sessions.redeem(late) is None
    assert sessions.open(cookie) is not None
    now[0] += 100
    assert sessions.open(cookie) is None


@pytest.mark.parametrize("forged", ["", ".", "a.b", "W10.", "é.é"])
def test_a_forged_cookie_is_nobody(forged: str) -> None:
    assert Sessions(WebSettings()).open(forged) is None


def test_a_cookie_signed_with_another_key_is_nobody() -> None:
    cookie = Sessions(WebSettings()).seal(Identity("admin", "console"))
    assert Sessions(WebSettings()).open(cookie) is None


def test_a_cookie_outlives_the_process_that_gave_it_when_the_key_is_kept() -> None:
    settings = WebSettings(session_key=b"k" * 32)
    cookie = Sessions(settings).seal(Identity("viewer", "console"))
    visitor = Sessions(settings).open(cookie)
    assert visitor is not None
    assert visitor.role == "viewer"


def test_a_cookie_lasts_no_longer_than_the_token_that_bought_it() -> None:
    now = [1000.0]
    sessions = Sessions(WebSettings(session_s=100), lambda: now[0])
    cookie = sessions.seal(Identity("viewer", "anna", jti="1", expires_at=1010.0))
    assert sessions.open(cookie) == Identity("viewer", "anna", jti="1")
    now[0] = 1011.0
    assert sessions.open(cookie) is None


def test_a_cookie_ends_with_the_signing_key_of_the_tokens() -> None:
    generation = ["first"]
    sessions = Sessions(WebSettings(), generation=lambda: generation[0])
    cookie = sessions.seal(Identity("admin", "console"))
    assert sessions.open(cookie) is not None
    generation[0] = "second"
    assert sessions.open(cookie) is None


OWN = {"Origin": "http://127.0.0.1:8420"}


def test_a_token_signs_in_with_its_role_and_signing_out_ends_it(app: Any) -> None:
    browser = caller(app)
    answer = browser.post("/signin", content=f"token={VIEWER}", headers=OWN)
    assert (answer.status_code, answer.url.path) == (200, "/")
    assert problem_of(browser.post("/api/v1/flows/train/runs", headers=OWN)) == (403, "forbidden")
    assert browser.get("/access").status_code == 403
    assert browser.post("/signout", headers=OWN).status_code == 200
    assert browser.get("/").status_code == 401


@pytest.mark.parametrize("body", ["", "token=", "token=made-up", f"token={WORKER}", "token=%ff%fe"])
def test_what_is_no_persons_token_signs_nobody_in(app: Any, body: str) -> None:
    browser = caller(app)
    assert browser.post("/signin", content=body, headers=OWN).status_code in (401, 403)
    assert browser.get("/").status_code == 401


def test_a_session_ends_when_its_token_is_revoked(app: Any, services: FakeServices) -> None:
    browser = caller(app)
    browser.post("/signin", content=f"token={VIEWER}", headers=OWN)
    assert browser.get("/").status_code == 200
    services.tokens.revoked.add("jti-of-viewer")
    assert browser.get("/").status_code == 401
    assert browser.get("/api/v1/runs").status_code == 401


def test_signing_in_sets_a_cookie_that_scripts_and_other_sites_cannot_use(app: Any) -> None:
    answer = caller(app).get(f"/{app.state.sessions.link()}", follow_redirects=False)
    assert answer.status_code == 303
    assert answer.headers["location"] == "./"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "path=/" in cookie
    assert cookie.startswith("farhand-8420=")


def test_signing_out_ends_the_session(app: Any) -> None:
    browser, elsewhere = signed_in(app), signed_in(app)
    cookie = dict(browser.cookies)
    assert browser.post("/signout", headers={"Origin": "http://127.0.0.1:8420"}).status_code == 200
    assert browser.get("/").status_code == 401
    browser.cookies.update(cookie)
    assert browser.get("/").status_code == 401, "nobody who has kept the cookie comes in with it"
    assert elsewhere.get("/").status_code == 200


def test_an_admin_can_hand_out_a_link_for_a_lesser_role(app: Any) -> None:
    path = caller(app, ADMIN).post("/api/v1/signin-links", json={"role": "viewer"}).json()["path"]
    browser = caller(app)
    assert browser.get(f"/{path}").status_code == 200
    same = {"Origin": "http://127.0.0.1:8420"}
    assert problem_of(browser.post("/api/v1/flows/train/runs", headers=same)) == (403, "forbidden")
