"""What is refused before any route sees it: other names, other origins, bodies too large."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient, WebSocketDenialResponse

from farhand.web.app import create_app
from farhand.web.guard import HEADERS
from farhand.web.hosts import host_name, is_loopback
from farhand.web.settings import WebSettings

from .apps import app_over
from .fakes import ADMIN, FakeServices, caller, problem_of, signed_in


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8420", "localhost", "localhost:1", "127.9.9.9", "[::1]:8420", "LOCALHOST:8420"]
)
def test_loopback_names_are_this_server(client: TestClient, host: str) -> None:
    assert client.get("/api/v1/runs", headers={"Host": host}).status_code == 200


def test_a_configured_name_is_this_server(client: TestClient) -> None:
    assert client.get("/api/v1/runs", headers={"Host": "flows.example.org"}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8420", "127.0.0.1.evil.example", "10.0.0.9", "", "localhost.evil.io"],
)
def test_any_other_name_is_refused_even_with_a_good_token(client: TestClient, host: str) -> None:
    assert problem_of(client.get("/api/v1/runs", headers={"Host": host})) == (403, "wrong_host")
    assert problem_of(client.get("/healthz", headers={"Host": host})) == (403, "wrong_host")


def test_the_address_a_connection_arrived_on_is_this_server(app: Any) -> None:
    far = TestClient(app, base_url="http://10.1.2.3:8420", headers={"Authorization": f"Bearer {ADMIN}"})
    assert far.get("/api/v1/runs").status_code == 200


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "http://127.0.0.1:9999", "null", "http://localhost:8420"]
)
def test_a_page_of_another_origin_may_change_nothing(app: Any, origin: str) -> None:
    browser = signed_in(app)
    answer = browser.post("/api/v1/flows/train/runs", headers={"Origin": origin})
    assert problem_of(answer) == (403, "cross_origin")


def test_a_browser_that_hides_its_origin_may_change_nothing(app: Any) -> None:
    browser = signed_in(app)
    assert problem_of(browser.post("/api/v1/flows/train/runs")) == (403, "cross_origin")
    hidden = {"Sec-Fetch-Site": "cross-site"}
    assert problem_of(browser.post("/api/v1/flows/train/runs", headers=hidden)) == (403, "cross_origin")


def test_the_consoles_own_pages_may(app: Any) -> None:
    own = {"Origin": "http://127.0.0.1:8420", "Sec-Fetch-Site": "same-origin"}
    assert signed_in(app).post("/api/v1/flows/train/runs", headers=own).status_code == 202


def test_a_program_without_origin_may(client: TestClient) -> None:
    assert client.post("/api/v1/flows/train/runs").status_code == 202


def test_a_websocket_from_another_origin_is_refused(services: FakeServices) -> None:
    app: Any = create_app(services)  # type: ignore[arg-type]
    reached: list[str] = []

    async def attach(websocket: Any) -> None:
        reached.append("route")
        await websocket.accept()
        await websocket.close()

    app.router.add_websocket_route("/api/v1/workers/attach", attach)
    client = caller(app)
    for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
        connection = client.websocket_connect("/api/v1/workers/attach", headers=headers)
        with pytest.raises(WebSocketDenialResponse) as refused, connection:
            pass
        assert problem_of(refused.value)[0] == 403
    assert reached == []
    with client.websocket_connect("ws://127.0.0.1:8420/api/v1/workers/attach"):
        pass
    assert reached == ["route"]


def test_a_body_too_large_is_refused(services: FakeServices) -> None:
    app = app_over(services, WebSettings(body_bytes_max=1000))
    answer = caller(app, ADMIN).post("/api/v1/flows/train/runs", json={"params": {"lr": "x" * 2000}})
    assert problem_of(answer) == (413, "too_large")


@pytest.mark.parametrize("path", ["/", "/healthz", "/api/v1/runs", "/nope", "/static/console.css"])
def test_every_answer_carries_the_security_headers(app: Any, path: str) -> None:
    headers = signed_in(app).get(path).headers
    for name in HEADERS:
        assert name in headers
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy


def test_a_base_path_that_the_proxy_left_on_is_taken_off(services: FakeServices) -> None:
    app = app_over(services, WebSettings(base_path="/x/y"))
    client = caller(app, ADMIN)
    assert client.get("/x/y/api/v1/runs").status_code == 200
    assert client.get("/api/v1/runs").status_code == 200
    assert client.get("/x/yz/api/v1/runs").status_code == 404
    bare = client.get("/x/y", follow_redirects=False)
    assert (bare.status_code, bare.headers["location"]) == (308, "y/")
    cookie = client.get(f"/x/y/{app.state.sessions.link()}", follow_redirects=False).headers["set-cookie"]
    assert "Path=/x/y" in cookie


def test_host_names_are_read_from_every_form() -> None:
    assert host_name("Example.org:80") == "example.org"
    assert host_name("example.org.") == "example.org"
    assert host_name("[::1]:80") == "::1"
    assert host_name("[broken") == ""
    assert is_loopback("a.localhost")
    assert not is_loopback("")
    assert not is_loopback("0.0.0.0")


def test_the_login_node_that_carries_workers_is_a_name_of_this_server(app: Any) -> None:
    settings: WebSettings = app.state.settings
    assert problem_of(caller(app, ADMIN, host="login1:4242").get("/api/v1/runs"))[0] == 403
    settings.relay_hosts.add("login1")
    try:
        assert caller(app, ADMIN, host="login1:4242").get("/api/v1/runs").status_code == 200
    finally:
        settings.relay_hosts.clear()
