"""2.29: pages of other sites and names that point here get nowhere, over real sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.harness.deployment import PLAIN, Deployment, deployed
from tests.harness.waiting import eventually

API = "/api/v1"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("origins"), parallel=0) as running:
        yield running


def bearer(server: Deployment) -> dict[str, str]:
    return {"Authorization": f"Bearer {(server.home / 'admin-token').read_text().strip()}"}


def cookie(server: Deployment) -> dict[str, str]:
    """The cookie of somebody who is signed in as admin."""
    path = server.post("/signin-links", {})["path"]
    answer = httpx2.get(f"{server.url}/{path}", follow_redirects=False, **PLAIN)
    return {"Cookie": answer.headers["set-cookie"].partition(";")[0]}


REBOUND = ["evil.example", "evil.example:8420", "169.254.169.254", "127.0.0.1.evil.example", "[fe80::1]"]


@pytest.mark.fault("2.29")
@pytest.mark.parametrize("host", REBOUND)
@pytest.mark.parametrize("path", ["/", f"{API}/runs", f"{API}/stream", "/healthz", f"{API}/workers/runtime"])
def test_a_rebound_name_reads_nothing_even_with_a_good_credential(
    server: Deployment, host: str, path: str
) -> None:
    for credential in (bearer(server), cookie(server)):
        answer = httpx2.get(f"{server.url}{path}", headers={**credential, "Host": host}, **PLAIN)
        assert (answer.status_code, answer.json()["code"]) == (403, "wrong_host")


@pytest.mark.fault("2.29")
@pytest.mark.parametrize("lines", [b"", b"Host:\r\n", b"Host: evil.example\r\n"])
def test_a_request_without_a_good_host_is_refused(server: Deployment, lines: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\n" + lines + b"Connection: close\r\n\r\n")
        status = connection.makefile("rb").readline()
    assert status.split()[1] in (b"400", b"403"), status


ORIGINS = ["https://evil.example", "null", "http://127.0.0.1:1", "http://localhost", "https://127.0.0.1"]


@pytest.mark.fault("2.29")
@pytest.mark.parametrize("origin", ORIGINS)
def test_a_page_of_another_origin_changes_nothing_with_the_cookie_of_an_admin(
    server: Deployment, origin: str
) -> None:
    signed_in = {**cookie(server), "Origin": origin}
    before = server.items("/audit", limit=1)
    for method, path in (
        ("POST", f"{API}/flows/quick/runs"),
        ("POST", f"{API}/workers/tokens"),
        ("POST", f"{API}/workers/tokens/rotate-key"),
        ("PUT", f"{API}/secrets/db"),
        ("DELETE", f"{API}/variables/x"),
        ("POST", "/signin"),
        ("POST", "/signout"),
    ):
        answer = httpx2.request(
            method, f"{server.url}{path}", headers=signed_in, json={"value": "x"}, **PLAIN
        )
        assert (answer.status_code, answer.json()["code"]) == (403, "cross_origin"), path
    assert server.items("/audit", limit=1) == before


@pytest.mark.fault("2.29")
def test_a_page_of_another_origin_cannot_read_what_it_asks_for(server: Deployment) -> None:
    headers = {**cookie(server), "Origin": "https://evil.example"}
    for path in (f"{API}/runs", "/"):
        answer = httpx2.get(f"{server.url}{path}", headers=headers, **PLAIN)
        assert not [name for name in answer.headers if name.startswith("access-control-")]
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    preflight = httpx2.options(f"{server.url}{API}/runs", headers=headers, **PLAIN)
    assert not [name for name in preflight.headers if name.startswith("access-control-")]


@pytest.mark.fault("2.29")
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Host": "evil.example"},
        {"Host": "evil.example", "Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
    ids=str,
)
def test_a_websocket_from_elsewhere_is_refused_even_with_a_workers_token(
    server: Deployment, headers: dict[str, str]
) -> None:
    token = server.token("box", [])
    request = (
        f"GET {API}/workers/attach HTTP/1.1\r\n"
        f"Authorization: Bearer {token}\r\n"
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    )
    merged = {"Host": f"127.0.0.1:{server.port}", **headers}
    request += "".join(f"{name}: {value}\r\n" for name, value in merged.items()) + "\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(request.encode())
        status = connection.makefile("rb").readline()
    assert status.split()[1] == b"403", status
    assert server.worker_state("box") == ""


@pytest.mark.fault("2.29")
def test_a_websocket_from_nowhere_else_is_let_in(server: Deployment) -> None:
    url = f"ws://127.0.0.1:{server.port}{API}/workers/attach"
    token = server.token("box", [])
    with connect(url, additional_headers={"Authorization": f"Bearer {token}"}, proxy=None):
        pass
    with pytest.raises(InvalidStatus):
        connect(url, additional_headers={"Authorization": "Bearer x"}, proxy=None)


@pytest.mark.fault("2.29")
def test_forwarded_headers_are_believed_from_a_trusted_proxy_alone(tmp_path: Path) -> None:
    with deployed(tmp_path, parallel=0) as running:
        forwarded = {**bearer(running), "X-Forwarded-For": "203.0.113.9", "X-Forwarded-Host": "evil.example"}
        httpx2.post(f"{running.url}{API}/signin-links", headers=forwarded, **PLAIN)
        assert running.items("/audit", limit=1)[0]["address"] == "127.0.0.1"
        running.server.kill()
        running.server.environment["FARHAND_TRUSTED_PROXY"] = "127.0.0.0/8"
        running.restart()
        httpx2.post(f"{running.url}{API}/signin-links", headers=forwarded, **PLAIN)
        eventually(lambda: running.items("/audit", limit=1)[0]["address"] == "203.0.113.9")
