"""Starting a run has a quick way, which answers as the described one does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from farhand.errors import StoreFailed
from farhand.web import quick as quick_module

from .apps import app_over
from .fakes import ADMIN, VIEWER, FakeServices, caller

QUICK, DESCRIBED = "application/json", "application/json; charset=utf-8"

BODIES = [
    b"{}",
    b'{"params":{"lr":0.5},"idempotency_key":"k","sweep":"s","more":[1]}',
    b'{"params":{"lr":123456789012345678901234567890}}',
    b'{"params":{"lr":1e400}}',
    b'{"params":{"lr":NaN}}',
    b'{"params":{"lr":"\\ud800"}}',
    b'{"params":{"depth":1}}',
    b'{"params":[1]}',
    b'{"idempotency_key":7}',
    b'{"sweep":"S !"}',
    b"null",
    b"[]",
    b'"x"',
    b"",
    b"{",
    b"\xff\xfe",
    b'{"params":{"lr":"' + b"x" * 300_000 + b'"}}',
    b" " * 5_000_000,
    b" " * 9_000_000,
]


def _answer(directory: Path, kind: str, body: bytes, who: str | None, **asked: Any) -> tuple[Any, ...]:
    services = FakeServices(directory)
    app = app_over(services)
    services.runs.fails_to_start = asked.get("fails")
    headers = {"Content-Type": kind, **asked.get("headers", {})}
    client = caller(app, who) if who else caller(app)
    path = f"/api/v1/flows/{asked.get('flow', 'train')}/runs"
    answer = client.post(path, content=body, headers=headers)
    told = [(e.action, e.role, e.subject, e.outcome, e.status, e.details) for e in services.audit.items]
    shown = {name: value for name, value in answer.headers.items() if name != "content-length"}
    return answer.status_code, answer.content, shown, told


@pytest.mark.parametrize("body", BODIES, ids=lambda body: repr(body[:30]))
def test_the_quick_way_answers_as_the_described_one(tmp_path: Path, body: bytes) -> None:
    assert _answer(tmp_path / "a", QUICK, body, ADMIN) == _answer(tmp_path / "b", DESCRIBED, body, ADMIN)


@pytest.mark.parametrize(
    ("who", "asked"),
    [
        (None, {}),
        ("made-up", {}),
        (VIEWER, {}),
        (ADMIN, {"flow": "nope"}),
        (ADMIN, {"flow": "tr%61in"}),
        (ADMIN, {"fails": StoreFailed()}),
        (ADMIN, {"headers": {"Host": "elsewhere.example"}}),
        (ADMIN, {"headers": {"Origin": "http://elsewhere.example"}}),
        (ADMIN, {"headers": {"Farhand-Session": "instance key"}}),
    ],
)
def test_it_refuses_as_the_described_one(tmp_path: Path, who: str | None, asked: dict[str, Any]) -> None:
    ways = [_answer(tmp_path / kind[-1], kind, b"{}", who, **asked) for kind in (QUICK, DESCRIBED)]
    assert ways[0] == ways[1]


def test_it_is_taken_for_plain_requests_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []
    monkeypatch.setattr(quick_module, "_start_in", taken.append)
    for number, (kind, more) in enumerate(
        [
            (QUICK, {}),
            (DESCRIBED, {}),
            (QUICK, {"Farhand-Session": "i k"}),
            (QUICK, {"Origin": "http://elsewhere.example"}),
            (QUICK, {"Host": "elsewhere.example"}),
            (QUICK, {"Authorization": "Basic x"}),
        ]
    ):
        _answer(tmp_path / str(number), kind, b"{}", ADMIN, headers=more)
    assert len(taken) == 1


def test_a_failure_after_the_run_is_stored_is_answered_as_any_other(tmp_path: Path) -> None:
    services = FakeServices(tmp_path)
    app = app_over(services)

    async def start(*_: Any, told: Any) -> Any:
        told.written = True
        raise RuntimeError("later")

    services.runs.start = start  # type: ignore[method-assign]
    answer = caller(app, ADMIN).post("/api/v1/flows/train/runs", json={})
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert answer.headers["cache-control"] == "no-store"
