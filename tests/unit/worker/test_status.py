"""What a worker says of its own health, and the page that shows it."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Any

import pytest

from farhand_worker.protocol import Inventory
from farhand_worker.status import Host, Running, Status, as_json, duration, healthy, mood, sentence
from farhand_worker.status_page import page
from farhand_worker.status_server import named, respond
from farhand_worker.tally import FLOWS_MAX, FlowTally, Message, RecentMessages, Tallies

NOW = 1_800_000_000.0
TRAIN = FlowTally("train", completed=3, failed=1, last="failed", message="out of <memory>", at=NOW - 5)
LOAD = FlowTally("load", completed=9, last="completed", at=NOW - 3)
STATUS = Status(
    at=NOW,
    name="mill",
    labels=["gpu"],
    version="1.0, protocol 1",
    server="https://f.example",
    attached=True,
    since=NOW - 100,
    answered_at=NOW - 1,
    silent_s=1.0,
    heartbeat_s=3.0,
    trouble="",
    disk="",
    draining=False,
    code="bundles, by digest",
    started_at=NOW - 7200,
    parallel=2,
    running=[Running("j1", "r1", "load", "run", NOW - 60)],
    total=FlowTally("", completed=12, failed=1),
    flows=[LOAD],
    messages=[Message(NOW - 9, "warning", "disconnected: <gone>")],
    host=Host(
        "mill.example", "Linux 6", "3.9.18", "3.12.1 (/usr/bin/python3)", Inventory(8, 2, 2048, ["0", "1"])
    ),
)


@pytest.mark.parametrize(
    ("change", "word", "text"),
    [
        ({}, "well", "All is well: attached with 1 of 2 slots in use."),
        ({"disk": "it is full"}, "failing", "Nothing new is taken: it is full; 1 job to finish."),
        (
            {"flows": [TRAIN, LOAD]},
            "failing",
            "Attached with 1 of 2 slots in use; the last job of train failed.",
        ),
        (
            {"flows": [TRAIN, replace(TRAIN, flow="b")]},
            "failing",
            "Attached with 1 of 2 slots in use; the last job of train and 1 more failed.",
        ),
        ({"draining": True}, "draining", "Draining: nothing new is taken, 1 job to finish."),
        ({"silent_s": 9.0}, "away", "Attached, but the server has not answered for 9 s."),
        (
            {"attached": False, "silent_s": 600.0, "trouble": "no answer"},
            "away",
            "The server has been away for 10 min; 1 job still running: no answer. It is dialled again.",
        ),
        (
            {"attached": False, "answered_at": None, "running": [], "trouble": "no answer"},
            "away",
            "The server has not been reached for 1 s: no answer. It is dialled again.",
        ),
    ],
)
def test_one_sentence_says_how_it_is(change: dict[str, Any], word: str, text: str) -> None:
    status = replace(STATUS, **change)
    assert (mood(status), sentence(status)) == (word, text)


@pytest.mark.parametrize(("silent_s", "well"), [(0.0, True), (8.9, True), (9.0, False), (900.0, False)])
def test_it_is_healthy_until_three_heartbeats_are_missed(silent_s: float, well: bool) -> None:
    assert healthy(replace(STATUS, silent_s=silent_s)) is well


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (200000, "2 d")]
)
def test_a_length_of_time_is_said_roughly(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_page_opens_with_the_sentence_and_shows_failing_flows_first() -> None:
    text = page(replace(STATUS, flows=[TRAIN, LOAD]))
    assert text.index("the last job of train failed") < text.index("<dl") < text.index("Running now")
    assert text.index('<td class="">train</td>') < text.index("1 more flow without a failure, 9 jobs")
    assert '<td class="">load</td>' in text.split("<details>")[1]
    assert "out of &lt;memory&gt;" in text
    assert "disconnected: &lt;gone&gt;" in text
    assert "<script" not in text
    assert "<form" not in text
    assert "<button" not in text


def test_the_page_of_a_fresh_worker_says_that_there_is_nothing_yet() -> None:
    fresh = replace(STATUS, flows=[], running=[], messages=[], answered_at=None, labels=[])
    text = page(replace(fresh, host=replace(STATUS.host, inventory=Inventory())))
    for words in ("Nothing runs now.", "No job has ended here yet.", "Nothing has been said yet.", "never"):
        assert words in text
    assert text.count("not known") == 3


def test_its_links_are_relative() -> None:
    text = page(STATUS)
    assert 'href="style.css"' in text
    assert 'href="status.json"' in text
    assert 'href="/' not in text


def test_programs_get_the_same_as_json() -> None:
    body = json.loads(json.dumps(as_json(replace(STATUS, flows=[TRAIN]))))
    assert (body["health"], body["healthy"], body["name"], body["parallel"]) == ("failing", True, "mill", 2)
    assert body["running"][0]["flow"] == "load"
    assert body["flows"][0]["message"] == "out of <memory>"
    assert body["messages"][0] == {"at": NOW - 9, "level": "warning", "text": "disconnected: <gone>"}
    assert body["host"]["inventory"]["devices"] == ["0", "1"]


def asked(path: str, status: Status = STATUS, method: str = "GET", host: str = "127.0.0.1:80") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
    return respond(head, "127.0.0.1", lambda: status)


@pytest.mark.parametrize(
    ("path", "method", "host", "code"),
    [
        ("/", "GET", "127.0.0.1:80", 200),
        ("/?x=1", "GET", "localhost", 200),
        ("/status.json", "GET", "[::1]:80", 200),
        ("/style.css", "HEAD", "localhost:9", 200),
        ("/healthz", "GET", "localhost", 200),
        ("/", "POST", "localhost", 405),
        ("/", "DELETE", "localhost", 405),
        ("/other", "GET", "localhost", 404),
        ("/../etc/passwd", "GET", "localhost", 404),
        ("/", "GET", "evil.example", 403),
        ("/", "GET", "10.0.0.1", 403),
        ("/", "GET", "", 403),
    ],
)
def test_it_is_for_reading_from_this_machine(path: str, method: str, host: str, code: int) -> None:
    response = asked(path, method=method, host=host)
    assert response.startswith(f"HTTP/1.1 {code} ".encode())
    assert b"Cache-Control: no-store\r\n" in response
    assert b"Content-Security-Policy: default-src 'none'; style-src 'self'" in response
    assert (response.split(b"\r\n\r\n", 1)[1] == b"") == (method == "HEAD")


def test_what_is_no_request_is_answered_with_400() -> None:
    assert respond(b"\x16\x03\x01 nonsense\r\n\r\n", "127.0.0.1", lambda: STATUS).startswith(b"HTTP/1.1 400 ")


def test_healthz_is_503_when_the_server_has_not_answered() -> None:
    response = asked("/healthz", replace(STATUS, silent_s=10.0))
    assert response.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert response.endswith(b"Attached, but the server has not answered for 10 s.\n")


@pytest.mark.parametrize(
    ("host", "listening", "known"),
    [
        ("10.0.0.5:80", "0.0.0.0", True),
        ("evil.example", "0.0.0.0", False),
        ("mill.example:80", "mill.example", True),
        ("127.0.0.1.evil.example", "127.0.0.1", False),
    ],
)
def test_beyond_loopback_it_answers_to_addresses_and_its_own_name(
    host: str, listening: str, known: bool
) -> None:
    assert named(host, listening) is known


def test_flows_are_tallied_and_the_failing_come_first() -> None:
    tallies = Tallies()
    for number, (flow, end) in enumerate(
        [("a", "completed"), ("b", "failed"), ("b", "completed"), ("c", "crashed"), ("d", "cancelled")]
    ):
        tallies.ended(flow, end, end, float(number))
    assert [tally.flow for tally in tallies.flows()] == ["c", "b", "d", "a"]
    total = tallies.total
    assert (total.completed, total.failed, total.other, total.jobs) == (2, 2, 1, 5)


def test_no_more_flows_are_kept_than_can_be_shown() -> None:
    tallies = Tallies()
    for number in range(FLOWS_MAX + 10):
        tallies.ended(f"flow{number}", "completed", "", float(number))
    assert len(tallies.flows()) == FLOWS_MAX
    assert tallies.total.completed == FLOWS_MAX + 10


def test_the_last_messages_are_kept() -> None:
    recent = RecentMessages()
    for number in range(60):
        recent.handle(logging.LogRecord("x", logging.WARNING, "", 0, "line %d", (number,), None))
    assert [message.text for message in recent.messages][::49] == ["line 10", "line 59"]
    assert recent.messages[0].level == "warning"
