"""Services on a worker, used through the server: requests, streams, websockets, and what they may see."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from tests.harness.commands import called
from tests.harness.deployment import Deployment, deployed
from tests.harness.kept import Kept
from tests.harness.processes import send
from tests.harness.proxy import Proxy
from tests.harness.waiting import eventually

NAMED = "flows.example.test"
"""A name of the server's, for which there is no domain that services have hosts below."""

MEGABYTE = 1024 * 1024


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """A server and a worker with two services, for the whole module."""
    kept = Kept(tmp_path_factory.mktemp("proxied"))
    kept.add("web", program="pages.py", device="near", health="/health")
    kept.add("talk", "websockets", program="pages.py", device="near", health=None)
    kept.add("other", program="pages.py", device="near", health="/health")
    kept.add("away", program="pages.py", device="slow", health="/health")
    settings = {"FARHAND_SERVICE_ANSWER_S": "3", "FARHAND_PUBLIC_HOST": NAMED}
    with deployed(kept.directory, project=kept.project, parallel=1, settings=settings) as deployment:
        kept.deployment = deployment
        deployment.worker("box", "near", parallel=1)
        for name in ("web", "talk", "other"):
            kept.becomes(name, "healthy")
        yield kept


@pytest.fixture
def deployment(kept: Kept) -> Deployment:
    assert kept.deployment is not None
    return kept.deployment


@pytest.fixture
def http(deployment: Deployment) -> Iterator[httpx2.Client]:
    """A program with the admin's token, at the service."""
    headers = {"Authorization": deployment.client.headers["Authorization"]}
    with httpx2.Client(base_url=f"{deployment.url}/services/web", headers=headers, timeout=20) as client:
        yield client


@pytest.fixture
def browser(deployment: Deployment) -> Iterator[httpx2.Client]:
    """Somebody who has signed in."""
    link = deployment.post("/signin-links", {"role": "admin"})["path"]
    with httpx2.Client(base_url=deployment.url, timeout=20) as client:
        assert client.get(f"/{link}").status_code in (200, 303)
        yield client


def seen(answer: httpx2.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_request_reaches_the_service_as_it_was_written(http: httpx2.Client) -> None:
    found = seen(
        http.get("/a%2Fb/c%20d?x=1&y=%2F", headers={"X-Own": "kept", "Cookie": "farhand-1=a; own=b"})
    )
    assert found["target"] == "/a%2Fb/c%20d?x=1&y=%2F"
    headers = found["headers"]
    assert headers["x-own"] == "kept"
    assert headers["x-forwarded-prefix"] == "/services/web"
    assert headers["x-forwarded-for"] == "127.0.0.1"
    assert not {"authorization", "cookie"} & set(headers)


def test_a_body_of_fifty_megabytes_goes_there_and_back_in_pieces(
    http: httpx2.Client, deployment: Deployment
) -> None:
    pieces = [os.urandom(MEGABYTE) for _ in range(50)]
    digest = hashlib.sha256(b"".join(pieces)).hexdigest()
    before = [psutil.Process(pid).memory_info().rss for pid in _programs(deployment)]
    assert seen(http.post("/take", content=iter(pieces))) == [50 * MEGABYTE, digest]
    assert seen(http.post("/take", content=b"".join(pieces))) == [50 * MEGABYTE, digest]
    got = 0
    with http.stream("GET", f"/bytes?count={50 * MEGABYTE}") as answer:
        for piece in answer.iter_raw():
            got += len(piece)
    assert got == 50 * MEGABYTE
    after = [psutil.Process(pid).memory_info().rss for pid in _programs(deployment)]
    assert all(now - then < 25 * MEGABYTE for then, now in zip(before, after, strict=True))


def _programs(deployment: Deployment) -> list[int]:
    worker = deployment.workers["box"].process
    assert deployment.server.process is not None
    assert worker is not None
    return [deployment.server.process.pid, worker.pid]


def test_a_reader_that_reads_nothing_holds_up_neither_the_worker_nor_other_readers(
    http: httpx2.Client, deployment: Deployment, kept: Kept
) -> None:
    server = deployment.server.process
    assert server is not None
    with http.stream("GET", f"/bytes?count={1024 * MEGABYTE}") as answer:
        pieces = answer.iter_raw()
        next(pieces)
        before = psutil.Process(server.pid).memory_info().rss
        answered = deployment.get("/workers/box")["last_seen_at"]
        assert seen(http.get("/other"))["target"] == "/other"
        eventually(lambda: deployment.get("/workers/box")["last_seen_at"] > answered + 1, 20, "it beats on")
        assert psutil.Process(server.pid).memory_info().rss - before < 25 * MEGABYTE
    eventually(lambda: _connections(kept, "web") <= 8, 20, "what nobody reads is closed at the service too")


def test_heartbeats_get_through_a_slow_link_that_is_full_of_a_download(
    http: httpx2.Client, deployment: Deployment, kept: Kept
) -> None:
    """6 MB at 10 Mbit/s, which is 1 Mbit/s on a clockwork of a tenth: three leases long."""
    with contextlib.closing(Proxy(deployment.port, buffer_bytes=32 * 1024)) as link:
        deployment.worker("behind", "slow", parallel=1, url=link.url)
        kept.becomes("away", "healthy")
        link.bytes_per_s = 1_250_000
        got = http.get(f"{deployment.url}/services/away/bytes?count={6 * MEGABYTE}", timeout=90)
        assert len(got.content) == 6 * MEGABYTE
        assert kept.show("away")["restarts"] == 0
        lost = [e for e in deployment.items("/events", limit=1000) if e["kind"] == "worker.lost"]
        assert lost == []
        deployment.workers["behind"].clear()


def _connections(kept: Kept, name: str) -> int:
    port = kept.ports[name]
    found = psutil.net_connections("tcp")
    return sum(1 for each in found if each.status == "ESTABLISHED" and each.laddr and each.laddr.port == port)


def test_events_come_one_by_one(http: httpx2.Client, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with http.stream("GET", f"/stream?gate={gate}") as answer:
        lines = (line for line in answer.iter_lines() if line.startswith("data"))
        assert next(lines) == "data: first"
        gate.touch()
        assert next(lines) == "data: second"
    assert answer.headers["content-type"] == "text/event-stream"


def test_a_service_that_never_begins_its_answer_is_a_timeout_with_a_code(http: httpx2.Client) -> None:
    answer = http.get("/silent")
    assert (answer.status_code, answer.json()["code"]) == (504, "service_timeout")
    assert "did not begin its answer within 3 s" in answer.json()["detail"]


def test_a_service_that_breaks_off_breaks_off_at_the_visitor_too(http: httpx2.Client) -> None:
    with pytest.raises(httpx2.RemoteProtocolError):
        http.get("/broken")


def test_an_answer_speaks_for_the_service_alone(http: httpx2.Client) -> None:
    answer = http.get("/cookie")
    assert answer.headers["content-security-policy"].startswith("sandbox allow-scripts")
    assert not {"set-cookie", "clear-site-data"} & set(answer.headers)
    assert http.get("/away", follow_redirects=False).headers["location"] == "/services/web/echo?of=away"
    assert http.head("/").headers["content-length"] == "5"


def test_a_browser_is_sent_on_to_an_address_that_opens_that_service_alone(
    browser: httpx2.Client, deployment: Deployment
) -> None:
    away = browser.get("/services/web/deep/er?x=1", headers={"Host": f"{NAMED}:{deployment.port}"})
    assert away.status_code == 303
    address = httpx2.URL(f"{deployment.url}/services/web/deep/er").join(away.headers["location"])
    plain = httpx2.Client(timeout=20)
    found = seen(plain.get(address, headers={"Authorization": "Bearer own"}))
    assert found["target"] == "/deep/er?x=1"
    assert found["headers"]["authorization"] == "Bearer own"
    elsewhere = str(address).replace("/services/web/", "/services/other/")
    assert plain.get(elsewhere).json()["code"] == "unauthorized"
    asked = {"Origin": "null", "Access-Control-Request-Method": "PUT"}
    assert plain.options(address, headers=asked).headers["access-control-allow-origin"] == "*"
    assert plain.post(address, headers={"Origin": "null"}).status_code == 200
    own = {"Sec-Fetch-Site": "same-origin"}
    assert browser.post("/services/web/deep/er", headers=own).json()["code"] == "forbidden"
    plain.close()


def test_a_browser_is_led_to_the_host_of_the_service_by_a_code_that_works_once(
    browser: httpx2.Client, deployment: Deployment
) -> None:
    """Nothing of the console is there, and nobody else's page may ask for anything."""
    away = httpx2.URL(browser.get("/services/web/deep/er?x=1").headers["location"])
    assert (away.host, away.port) == ("web.localhost", deployment.port)
    here = f"web.localhost:{deployment.port}"
    with httpx2.Client(base_url=deployment.url, headers={"Host": here}, timeout=20) as page:
        assert page.get("/deep/er").json()["code"] == "unauthorized"
        let_in = page.get(away.raw_path.decode())
        assert let_in.headers["location"] == f"http://{here}/deep/er?x=1"
        assert page.get(away.raw_path.decode()).json()["code"] == "unauthorized"
        page.cookies.clear()
        page.headers["Cookie"] = let_in.headers["set-cookie"].partition(";")[0] + "; own=b"
        found = seen(page.get("/api/v1/runs?x=1", headers={"Authorization": "Bearer own"}))
        assert (found["target"], found["headers"]["cookie"]) == ("/api/v1/runs?x=1", "own=b")
        assert found["headers"]["authorization"] == "Bearer own"
        answer = page.get("/cookie")
        assert not {"set-cookie", "content-security-policy", "clear-site-data"} & set(answer.headers)
        for theirs in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "same-site"}):
            assert page.post("/take", headers=theirs).json()["code"] == "cross_origin"
        embedded = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}
        assert page.get("/echo", headers=embedded).json()["code"] == "cross_origin"
        led = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
        assert page.get("/echo", headers=led).status_code == 200
        page.headers["Host"] = here.replace("web", "other")
        assert page.get("/echo").json()["code"] == "unauthorized"
        page.headers["Cookie"] = f"farhand-{deployment.port}={browser.cookies[f'farhand-{deployment.port}']}"
        assert page.get("/echo").json()["code"] == "unauthorized", "a sign-in at the console is none here"


def test_signing_out_of_the_console_ends_what_it_let_in_at_services(
    browser: httpx2.Client, deployment: Deployment, tmp_path: Path
) -> None:
    away = httpx2.URL(browser.get("/services/web/").headers["location"])
    unused = httpx2.URL(browser.get("/services/web/").headers["location"])
    ticket = browser.get("/services/web/", headers={"Host": f"{NAMED}:{deployment.port}"}).headers["location"]
    here = {"Host": f"web.localhost:{deployment.port}"}
    stream = f"/stream?gate={tmp_path / 'never'}"
    with httpx2.Client(base_url=deployment.url, headers=here, timeout=20) as page:
        let_in = page.get(away.raw_path.decode())
        page.cookies.clear()
        page.headers["Cookie"] = let_in.headers["set-cookie"].partition(";")[0]
        assert page.get("/echo").status_code == 200
        with page.stream("GET", stream) as answer:
            lines = answer.iter_lines()
            assert next(lines) == "data: first"
            assert browser.post("/signout", headers={"Origin": deployment.url}).status_code == 200
            with pytest.raises(httpx2.RemoteProtocolError):
                deque(lines, maxlen=0)
        assert page.get("/echo").json()["code"] == "unauthorized"
        page.headers["Cookie"] = page.get(unused.raw_path.decode()).headers["set-cookie"].partition(";")[0]
        assert page.get("/echo").json()["code"] == "unauthorized", "a code that was not used in time"
    address = httpx2.URL(f"{deployment.url}/services/web/").join(ticket)
    assert httpx2.get(address, timeout=20).json()["code"] == "unauthorized"


def test_a_program_uses_a_service_at_its_own_host_by_its_token(
    http: httpx2.Client, deployment: Deployment
) -> None:
    headers = {"Host": f"web.localhost:{deployment.port}"}
    found = seen(http.get(f"{deployment.url}/echo", headers=headers))
    assert "authorization" not in found["headers"]
    assert http.get(f"{deployment.url}/away", headers=headers).headers["location"] == "/echo?of=away"


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [("/services/none/", 404, "not_found"), ("/services/web/", 401, "unauthorized")],
)
def test_what_is_not_there_or_not_allowed_is_said(
    deployment: Deployment, path: str, status: int, code: str
) -> None:
    headers = {} if status == 401 else {"Authorization": deployment.client.headers["Authorization"]}
    answer = httpx2.get(f"{deployment.url}{path}", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_a_viewer_and_a_worker_may_not_use_it(deployment: Deployment) -> None:
    tokens = [
        deployment.post("/workers/tokens", {"name": "looker", "role": "viewer", "labels": []})["token"],
        deployment.token("another", ["near"]),
    ]
    for token in tokens:
        answer = httpx2.get(f"{deployment.url}/services/web/", headers={"Authorization": f"Bearer {token}"})
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


def test_a_websocket_carries_both_ways_and_closes_with_its_code(deployment: Deployment) -> None:
    headers = {"Authorization": deployment.client.headers["Authorization"]}
    address = deployment.url.replace("http", "ws") + "/services/talk/room?x=1"
    with connect(address, additional_headers=headers, subprotocols=["spoken"], proxy=None) as link:  # type: ignore[list-item]
        assert json.loads(link.recv()) == ["/room?x=1", "spoken"]
        for message in ("text ä", b"\0bytes", "x" * MEGABYTE):
            link.send(message)
            assert link.recv() == message
        link.send("close")
        with pytest.raises(ConnectionClosedError) as ended:
            link.recv()
    assert ended.value.rcvd is not None
    assert (ended.value.rcvd.code, ended.value.rcvd.reason) == (4001, "as told")
    with pytest.raises(InvalidStatus) as refused:
        connect(address, proxy=None)
    assert refused.value.response.status_code == 401
    with pytest.raises(InvalidStatus) as refused:  # by the service, which wants its subprotocol
        connect(address, additional_headers=headers, proxy=None)
    assert refused.value.response.status_code == 400


def test_what_is_open_ends_when_the_token_it_was_opened_with_is_revoked(
    deployment: Deployment, tmp_path: Path
) -> None:
    made = deployment.post("/workers/tokens", {"name": "brief", "role": "operator", "labels": []})
    headers = {"Authorization": f"Bearer {made['token']}"}
    room = deployment.url.replace("http", "ws") + "/services/talk/room"
    stream = f"{deployment.url}/services/web/stream?gate={tmp_path / 'never'}"
    with (
        connect(room, additional_headers=headers, subprotocols=[Subprotocol("spoken")], proxy=None) as link,
        httpx2.stream("GET", stream, headers=headers, timeout=20) as answer,
    ):
        lines = answer.iter_lines()
        assert next(lines) == "data: first"
        link.recv(timeout=20)
        deployment.post(f"/workers/tokens/{made['jti']}/revoke")
        with pytest.raises(ConnectionClosed):
            link.recv(timeout=20)
        with pytest.raises(httpx2.RemoteProtocolError):
            deque(lines, maxlen=0)


def test_the_log_of_a_service_is_followed_until_it_is_stopped(deployment: Deployment, kept: Kept) -> None:
    with ThreadPoolExecutor(1) as threads:
        following = threads.submit(called, deployment, "services", "logs", "other", "--follow")
        deployment.post("/services/other/stop")
        done = following.result(timeout=30)
    assert done.returncode == 0
    assert f"listens on {kept.ports['other']}" in done.stdout
    shown = called(deployment, "services", "show", "talk").stdout
    assert f"{deployment.url}/services/talk/" in shown


def test_a_killed_service_answers_503_until_it_is_there_again(
    http: httpx2.Client, deployment: Deployment, kept: Kept
) -> None:
    pid = next(
        each.pid
        for each in psutil.net_connections("tcp")
        if each.status == "LISTEN" and each.laddr and each.laddr.port == kept.ports["web"]
    )
    assert pid is not None
    send(pid, signal.SIGKILL)
    statuses: list[int] = []

    def answers() -> bool:
        answer = http.get("/again")
        statuses.append(answer.status_code)
        assert "did not dial" not in answer.text
        assert answer.status_code == 200 or answer.json()["code"] in (
            "service_unavailable",
            "service_broke_off",
        )
        return len(statuses) > 1 and answer.status_code == 200 and kept.show("web")["restarts"] > 0

    eventually(answers, 30, "it is there again")
    assert set(statuses) <= {200, 502, 503}
    assert deployment.workers["box"].text().count("attached to") == 1, "its worker's session went on"
    deployment.post("/services/web/stop")
    kept.becomes("web", "stopped")
    answer = http.get("/again")
    assert (answer.status_code, answer.json()["code"]) == (503, "service_unavailable")
    assert "stopped" in answer.json()["detail"]
