"""Credentials on a real server: what ends with them, what is recorded, and what is kept out of sight."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from tests.harness.deployment import FAST, PLAIN, Deployment, deployed
from tests.harness.waiting import eventually

PATIENT = replace(FAST, reattach_s=60.0)
"""The server's own processors wait for a server that is slow to start, as one is on a busy machine."""

SECRET = "hunter2-hunter2-hunter2"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Deployment]:
    with deployed(tmp_path, parallel=1, times=PATIENT) as running:
        yield running


def a_viewer(server: Deployment) -> tuple[dict[str, str], str]:
    """The headers of somebody who may look, and the id of their token."""
    minted = server.post("/workers/tokens", {"name": "anna", "role": "viewer"})
    return {"Authorization": f"Bearer {minted['token']}"}, minted["jti"]


@pytest.mark.parametrize("how", ["revoke", "rotate-key"])
def test_a_stream_and_a_console_end_with_their_token(server: Deployment, how: str) -> None:
    headers, jti = a_viewer(server)
    token = headers["Authorization"].removeprefix("Bearer ")
    stream = httpx2.stream("GET", f"{server.url}/api/v1/stream", headers=headers, timeout=20, **PLAIN)
    with httpx2.Client(
        base_url=server.url, headers={"Origin": server.url}, follow_redirects=True, **PLAIN
    ) as browser:
        assert browser.post("/signin", data={"token": token}).status_code == 200
        with stream as answer:
            lines = answer.iter_lines()
            assert next(lines) == ": listening"
            path = f"/workers/tokens/{jti}/revoke" if how == "revoke" else "/workers/tokens/rotate-key"
            began_at = time.monotonic()
            server.post(path)
            list(lines)
            assert time.monotonic() - began_at < 2
        assert browser.get("/").status_code == 401
    assert httpx2.get(f"{server.url}/api/v1/runs", headers=headers, **PLAIN).status_code == 401
    (token_listed,) = server.items("/workers/tokens")
    assert token_listed["revoked_at"] is not None
    assert token_listed["address"] == "127.0.0.1"


def test_a_new_key_drops_workers_and_leaves_the_servers_own_processors(server: Deployment) -> None:
    worker = server.worker("box")
    local = server.local_pid
    assert server.post("/workers/tokens/rotate-key") == {"revoked": 1}
    assert worker.wait() == 3
    server.server.kill()
    server.restart()
    assert server.local_pid == local
    server.wait_for_worker("server", "online")
    assert (
        server.wait_for_run(server.start_run("three_steps", path=str(server.directory / "w")), "completed")[
            "state"
        ]
        == "completed"
    )


def test_no_file_of_the_server_shows_a_secret_and_the_doctor_finds_it_well(server: Deployment) -> None:
    assert server.client.put("/secrets/db", json={"value": SECRET}).status_code == 200
    answer = server.client.post(f"/flows/{SECRET}/runs", json={"params": {"password": SECRET}})
    assert answer.status_code == 404
    assert SECRET not in answer.text
    report = eventually(lambda: _when_clocks_are_known(server), what="the local worker has said its time")
    assert [finding for finding in report["findings"] if finding["level"] == "error"] == []
    assert report["store"]["details"].get("quick_check", "ok") == "ok"
    assert {setting["name"]: setting["source"] for setting in report["settings"]}["home"] == "flag"
    assert SECRET not in repr(server.items("/audit"))
    server.server.kill()
    assert SECRET not in server.server.text()
    for path in server.home.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path


def _when_clocks_are_known(server: Deployment) -> dict[str, object] | None:
    report = server.get("/doctor")
    clocks = [worker["skew_s"] for worker in report["workers"] if worker["name"] == "server"]
    return report if clocks and clocks[0] is not None and abs(clocks[0]) < 1 else None
