"""3.29: a thousand runs that wait for their calls. The engines are pretended, all else is as it is."""

from __future__ import annotations

from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.harness.crowd import Reports, attached
from tests.harness.deployment import FAST, Deployment, deployed
from tests.harness.peers import COMPLETED, STARTED
from tests.harness.waiting import eventually

RUNS, SLOTS = 1000, 2
TIMES = replace(FAST, heartbeat_s=1.0, lease_s=60.0)
"""Two threads of this process beat for a thousand engines; a pause of it is no fault that is meant here."""
CALL = {
    "key": "k", "name": "long_call", "entry": "placed:long_call", "args": {"enc": "json", "text": "[[],{}]"},
    "ask": {"labels": ["steady"]}, "at": 1.0,
}  # fmt: skip
BLOCKED: Reports = [STARTED, ["call", CALL], ["blocked", {"at": 1.0, "n": 1}]]
ON = {
    "assign": BLOCKED,
    "outcome": [["unblocked", {"at": 2.0, "n": 1}]],
    "proceed": [COMPLETED],
}
"""What a parent's engine says: it calls and waits, has what it waited for, and ends when it may go on."""


def of_a_parent(message: dict[str, Any]) -> Reports:
    return ON.get(message["type"], [])


def of_a_call(message: dict[str, Any]) -> Reports:
    return [STARTED, COMPLETED] if message["type"] == "assign" else []


def start(server: Deployment, count: int) -> None:
    """Queue so many runs, over one plain connection: a better client takes longer than the server."""
    headers = {"Authorization": server.client.headers["Authorization"], "Content-Type": "application/json"}
    link = HTTPConnection("127.0.0.1", server.port)
    for _ in range(count):
        body = b'{"params": {"path": "", "gate": ""}}'
        link.request("POST", "/api/v1/flows/parent_of_a_long_call/runs", body, headers)
        answer = link.getresponse()
        assert answer.status == 202, answer.read()
        answer.read()
    link.close()


@pytest.mark.fault("3.29")
def test_a_thousand_blocked_runs_are_few_at_a_time_and_all_end(tmp_path: Path) -> None:
    with deployed(tmp_path, times=TIMES) as server:
        tokens = {name: server.token(name, [name]) for name in ("frail", "steady")}
        start(server, RUNS)
        with attached(server.url, tokens["frail"], "frail", SLOTS, TIMES.heartbeat_s, of_a_parent) as parents:
            eventually(lambda: parents.held >= 4 * SLOTS, 60, "four blocked engines for each slot")
            last = server.items("/runs", state="queued", limit=1)[0]["id"]
            eventually(
                lambda: "blocked runs, of at most 8" in server.run(last)["message"],
                20,
                "the last says why it waits",
            )
            with attached(
                server.url, tokens["steady"], "steady", SLOTS, TIMES.heartbeat_s, of_a_call
            ) as calls:
                eventually(lambda: parents.ended == RUNS, 240, "every run has ended")
                assert calls.ended == RUNS, "each call was executed once"
        assert parents.most <= 4 * SLOTS + SLOTS, "the blocked ones, and those that have a slot"
        for state in ("queued", "starting", "running", "failed", "crashed", "cancelled"):
            assert server.items("/runs", state=state, limit=1) == []
