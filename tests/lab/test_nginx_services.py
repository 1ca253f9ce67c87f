"""Services behind a real nginx with TLS under a base path: the block of docs/proxy.md carries all they say.

Their worker dials through it as well, so that everything passes it twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from tests.harness.deployment import Deployment
from tests.harness.kept import Kept
from tests.lab.nginx import SERVICES, Nginx, behind_nginx

NAMED = "flows.example.test"
MEGABYTE = 1024 * 1024
PIECES = 20


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Deployment, Nginx]]:
    """A server behind nginx, and a worker with two services that dials nginx."""
    kept = Kept(tmp_path_factory.mktemp("behind"))
    kept.add("web", program="pages.py", device="near", health="/health")
    kept.add("talk", "websockets", program="pages.py", device="near", health=None)
    settings = {"FARHAND_SERVICES_HOST": SERVICES}
    deployment = kept.deployment = Deployment(
        kept.directory, project=kept.project, parallel=1, settings=settings
    )
    with behind_nginx(deployment, NAMED) as nginx, pytest.MonkeyPatch.context() as patch:
        patch.delenv("SSL_CERT_DIR", raising=False)
        patch.setenv("SSL_CERT_FILE", str(nginx.certificate))
        deployment.worker("box", "near", parallel=1, url=nginx.url)
        for name in ("web", "talk"):
            kept.becomes(name, "healthy")
        yield deployment, nginx


@pytest.fixture
def trust(behind: tuple[Deployment, Nginx]) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(behind[1].certificate))


@pytest.fixture
def http(behind: tuple[Deployment, Nginx], trust: ssl.SSLContext) -> Iterator[httpx2.Client]:
    """A program with the admin's token, at the service."""
    deployment, nginx = behind
    headers = {"Authorization": deployment.client.headers["Authorization"]}
    base = f"{nginx.url}/services/web"
    with httpx2.Client(base_url=base, headers=headers, verify=trust, trust_env=False, timeout=30) as client:
        yield client


def test_a_request_arrives_with_the_address_that_its_visitor_sees(
    http: httpx2.Client, behind: tuple[Deployment, Nginx]
) -> None:
    found = http.get("/a%2Fb/c%20d?x=1&y=%2F").json()
    assert found["target"] == "/a%2Fb/c%20d?x=1&y=%2F"
    headers = found["headers"]
    assert headers["x-forwarded-prefix"] == "/farhand/services/web"
    assert headers["x-forwarded-proto"] == "https"
    assert headers["x-forwarded-host"] == headers["host"] == f"localhost:{behind[1].port}"
    away = http.get("/away", follow_redirects=False)
    assert away.headers["location"] == "/farhand/services/web/echo?of=away"


def test_events_come_one_by_one(http: httpx2.Client, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with http.stream("GET", f"/stream?gate={gate}") as answer:
        lines = (line for line in answer.iter_lines() if line.startswith("data"))
        assert next(lines) == "data: first"
        gate.touch()
        assert next(lines) == "data: second"


def test_a_large_upload_arrives_whole_whether_its_length_is_told_or_not(http: httpx2.Client) -> None:
    pieces = [os.urandom(MEGABYTE) for _ in range(PIECES)]
    digest = hashlib.sha256(b"".join(pieces)).hexdigest()
    assert http.post("/take", content=iter(pieces)).json() == [PIECES * MEGABYTE, digest]
    assert http.post("/take", content=b"".join(pieces)).json() == [PIECES * MEGABYTE, digest]
    assert len(http.get(f"/bytes?count={PIECES * MEGABYTE}").content) == PIECES * MEGABYTE


def test_a_websocket_carries_both_ways(behind: tuple[Deployment, Nginx], trust: ssl.SSLContext) -> None:
    deployment, nginx = behind
    headers = {"Authorization": deployment.client.headers["Authorization"]}
    room = nginx.url.replace("https", "wss") + "/services/talk/room"
    spoken = [Subprotocol("spoken")]
    with connect(room, additional_headers=headers, subprotocols=spoken, ssl=trust, proxy=None) as link:
        assert json.loads(link.recv(timeout=20)) == ["/room", "spoken"]
        for message in ("text \u00e4", "x" * MEGABYTE):
            link.send(message)
            assert link.recv(timeout=20) == message


def test_a_browser_is_led_to_the_page_below_the_base_path(
    behind: tuple[Deployment, Nginx], trust: ssl.SSLContext
) -> None:
    deployment, nginx = behind
    path = deployment.post("/signin-links", {"role": "admin"})["path"]
    with httpx2.Client(verify=trust, trust_env=False, follow_redirects=True, timeout=20) as browser:
        browser.get(f"{nginx.url}/{path}")
        page = browser.get(f"{nginx.url}/services/web/")
        assert page.status_code == 200
        assert str(page.url).startswith(f"{nginx.url}/services/web/~")
        assert "<title>page</title>" in page.text


def test_a_browser_is_led_to_the_host_of_a_service_which_has_no_base_path(
    behind: tuple[Deployment, Nginx], trust: ssl.SSLContext
) -> None:
    deployment, nginx = behind
    console, here = f"{NAMED}:{nginx.port}", f"web.{SERVICES}:{nginx.port}"
    path = deployment.post("/signin-links", {"role": "admin"})["path"]
    with httpx2.Client(verify=trust, trust_env=False, timeout=20) as browser:
        browser.headers["Host"] = console
        browser.get(f"{nginx.url}/{path}")
        away = httpx2.URL(browser.get(f"{nginx.url}/services/web/deep?x=1").headers["location"])
        assert (away.scheme, away.netloc.decode()) == ("https", here)
        browser.headers["Host"] = here
        let_in = browser.get(f"https://localhost:{nginx.port}{away.raw_path.decode()}")
        assert let_in.headers["location"] == f"https://{here}/deep?x=1"
        assert "Secure" in let_in.headers["set-cookie"]
        found = browser.get(f"https://localhost:{nginx.port}/farhand/deep?x=1").json()
        assert found["target"] == "/farhand/deep?x=1"
        headers = found["headers"]
        assert (headers["host"], headers["x-forwarded-proto"]) == (here, "https")
        assert "x-forwarded-prefix" not in headers
