"""Finding the server, and what its errors become."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from farhand.cli import client as module
from farhand.cli.client import Client
from farhand.cli.following import read_lines, until_ended
from farhand.engine.bus import Notice
from farhand.errors import FarhandError, Forbidden, NotFound, Refused, Unauthorized, Unreachable, Usage
from farhand.model import LogLine
from tests.unit.web.fakes import ADMIN, T0, VIEWER, FakeServices, make_run

Find = Callable[..., Client]


@pytest.fixture
def find() -> Iterator[Find]:
    """`client.find`, whose clients are closed after the test."""
    with ExitStack() as stack:
        yield lambda *where: stack.enter_context(module.find(*where))


def test_the_homes_own_server_is_found_with_its_token(find: Find, server: str) -> None:
    client = find()
    assert client.url == server
    assert client.answers()
    assert client.get("/runs")["items"][0]["id"] == "0run1"


def test_a_url_takes_its_token_from_the_environment(
    find: Find, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FARHAND_URL", server)
    monkeypatch.setenv("FARHAND_TOKEN", VIEWER)
    client = find()
    assert client.get("/runs")["items"]
    with pytest.raises(Forbidden, match="viewer"):
        client.post("/flows/train/runs", {})


def test_a_token_may_lie_in_a_file(
    find: Find, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text(f"{VIEWER}\n")
    monkeypatch.setenv("FARHAND_TOKEN_FILE", str(tmp_path / "secret"))
    assert find(server).get("/runs")["items"]
    monkeypatch.setenv("FARHAND_TOKEN_FILE", str(tmp_path / "none"))
    with pytest.raises(Usage, match="FARHAND_TOKEN_FILE"):
        find(server)


def test_the_homes_token_goes_to_no_other_server(find: Find, home: Path) -> None:
    (home / "admin-token").write_text(ADMIN)
    with pytest.raises(Unauthorized, match="FARHAND_TOKEN"):
        find("http://127.0.0.1:1")


def test_the_homes_token_goes_to_the_homes_server_by_its_url_too(find: Find, server: str) -> None:
    assert find(server + "/").get("/runs")["items"]


@pytest.mark.parametrize(
    "url", ["http://example.org", "ftp://example.org", "example.org", "http://10.0.0.1:8420"]
)
def test_a_token_does_not_leave_this_machine_unencrypted(url: str) -> None:
    with pytest.raises(Usage):
        Client(url, lambda: "secret")


def test_insecure_is_a_choice() -> None:
    assert Client("http://10.0.0.1:8420", lambda: "secret", insecure=True).url == "http://10.0.0.1:8420"


def test_a_home_without_a_server_says_what_to_do(find: Find, home: Path) -> None:
    with pytest.raises(Unreachable, match="farhand serve"):
        find()


def test_a_server_that_is_gone_is_unreachable(find: Find, home: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    (home / "server.json").write_text(json.dumps({"url": url}))
    (home / "admin-token").write_text(ADMIN)
    assert not find().answers()
    with pytest.raises(Unreachable, match="is the server running"):
        find().get("/runs")


def test_a_problem_becomes_the_exception_of_its_code(find: Find, server: str, services: FakeServices) -> None:
    with pytest.raises(NotFound, match="there is no run"):
        find().get("/runs/0zz")
    services.runs.fails = RuntimeError("x")
    with pytest.raises(FarhandError) as failed:
        find().get("/runs/0run1")
    assert failed.value.exit_code == 1


def test_what_tls_trusts_is_loaded_for_a_server_with_tls_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    verified: list[Any] = []
    monkeypatch.setattr(httpx2, "Client", lambda **more: verified.append(more["verify"]))
    for url in ("http://127.0.0.1:1", "https://127.0.0.1:1", "https://far.example"):
        Client(url, lambda: "t")
    Client("http://far.example", lambda: "t", insecure=True)  # a proxy on the way to it may speak TLS
    assert verified == [False, True, True, True]


def test_something_that_is_no_farhand_server_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(502, text="<html>bad gateway</html>")

    client = Client("http://127.0.0.1:1", lambda: "t")
    monkeypatch.setattr(client, "_http", httpx2.Client(transport=httpx2.MockTransport(answer)))
    with pytest.raises(Refused, match="answered 502"):
        client.get("/runs")


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (
            lambda url: f"{url}/base",
            Usage,
            r"the server has no http://\S+/base/api/v1/runs; check its address",
        ),
        (
            lambda url: url.replace("http:", "https:"),
            Unreachable,
            r"it speaks no TLS; is its address http://\?",
        ),
        (lambda _: "http://127.0.0.1:1", Unreachable, r"does not answer \(Connection refused\)"),
    ],
)
def test_an_address_that_is_not_quite_that_of_a_server_says_what_is_wrong(
    server: str,
    change: Callable[[str], str],
    kind: type[FarhandError],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FARHAND_TOKEN", ADMIN)
    with module.find(change(server)) as client, pytest.raises(kind, match=words):
        client.get("/runs")


def test_lines_are_read_to_the_end(find: Find, server: str, services: FakeServices) -> None:
    services.runs.lines = [LogLine(n, T0, f"line {n}", "stdout", "info", None, 1) for n in range(1, 2501)]
    told: list[Any] = []
    assert read_lines(find(), "0run1", 0, told.append) == 2500
    assert [line["number"] for line in told] == list(range(1, 2501))


def test_a_run_is_followed_by_its_notices_until_it_ends(
    find: Find, server: str, services: FakeServices
) -> None:
    services.runs.items["0run1"] = make_run(state="running", ended_at=None)
    states: list[str] = []
    lines: list[str] = []

    def tell_state(run: Any) -> None:
        states.append(run["state"])
        if run["state"] == "running":
            # Followed from here on: what happens now is heard of through a notice and nothing else.
            services.runs.lines.append(LogLine(1, T0, "late", "stdout", "info", None, 1))
            services.runs.items["0run1"] = make_run()
            services.publish(Notice("run", "0run1", make_run()))

    run = until_ended(find(), "0run1", lambda line: lines.append(line["text"]), tell_state)
    assert run["state"] == "completed"
    assert states == ["running", "completed"]
    assert lines == ["late"]


def test_a_server_that_goes_away_and_comes_back_is_followed_on(
    find: Find, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = find()
    get, away = client.get, iter([Unreachable("gone"), httpx2.ReadError("cut")])
    notices = client._notices

    def failing_get(path: str, **params: Any) -> Any:
        for error in away:
            raise error
        return get(path, **params)

    def cut_notices(run: str) -> Any:
        yield
        for error in away:
            raise error
        yield from notices(run)

    monkeypatch.setattr(client, "get", failing_get)
    monkeypatch.setattr(client, "_notices", cut_notices)
    assert until_ended(client, "0run1")["state"] == "completed"


def test_no_line_is_told_twice_when_a_page_of_them_fails(
    find: Find, server: str, services: FakeServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    services.runs.lines = [LogLine(n, T0, f"line {n}", "stdout", "info", None, 1) for n in range(1, 1501)]
    client = find()
    get, away = client.get, iter([Unreachable("gone")])

    def failing_get(path: str, **params: Any) -> Any:
        if params.get("after") == 1000:
            for error in away:
                services.publish(Notice("logs", "0run1"))
                raise error
        return get(path, **params)

    monkeypatch.setattr(client, "get", failing_get)
    told: list[int] = []
    until_ended(client, "0run1", lambda line: told.append(line["number"]))
    assert told == list(range(1, 1501))


def test_a_stream_that_is_refused_is_an_error(server: str) -> None:
    with Client(server, lambda: "made-up") as client, pytest.raises(Unauthorized):
        next(client.follow("0run1"))


def test_a_followed_server_that_stays_away_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.0)
    nowhere = Client("http://127.0.0.1:1", lambda: "t")
    with nowhere as client, pytest.raises(Unreachable, match="does not answer any more"):
        next(client.follow("0run1"))


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:port", "http://127.0.0.1:99999", "127.0.0.1:8420", "http://"]
)
def test_what_is_no_address_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(Usage, match="is not the address of a server"):
        Client(url, lambda: "")


@pytest.mark.parametrize("token", ["two words", "two\nlines", "tökén"])
def test_what_cannot_be_a_token_is_refused_before_it_is_sent(token: str) -> None:
    with pytest.raises(Usage, match="not one word of plain characters"):
        Client("http://127.0.0.1:1", lambda: token).get("/runs")
