"""Values have a quick way, which answers as the described one does."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from farhand.blobs import digest_of
from farhand.web import quick_artifacts

from .apps import app_over
from .fakes import ADMIN, VIEWER, WORKER, FakeServices, caller

CONTENT = b"0123456789"
PATH = f"/api/v1/artifacts/{digest_of(CONTENT)}"
QUICK, DESCRIBED = "7", "+7"
HOLDING = SimpleNamespace(lease=7, job=SimpleNamespace(args={}, bundle="", fingerprint=""))


def _answer(directory: Path, lease: str, who: str | None, method: str, **asked: Any) -> tuple[Any, ...]:
    services = FakeServices(directory)
    services.leases.current.add(("0job1", 7))
    services.fleet.holders["0job1"] = (services.workers.items[0], HOLDING)
    if asked.get("stored", method != "PUT"):
        services.leases.readable.add(services.blobs.put_bytes(CONTENT))
    headers = {"Farhand-Job": "0job1", "Farhand-Lease": lease, **asked.get("headers", {})}
    client = caller(app_over(services), who) if who else caller(app_over(services))
    path = asked.get("path", PATH)
    answer = client.request(method, path, headers=headers, content=asked.get("content"))
    shown = {name: value for name, value in answer.headers.items() if name != "last-modified"}
    return answer.status_code, answer.content, shown, len(services.audit.items)


@pytest.mark.parametrize("who", [ADMIN, WORKER, VIEWER, "made-up", None])
@pytest.mark.parametrize(
    ("method", "asked"),
    [
        ("GET", {}),
        ("GET", {"stored": False}),
        ("GET", {"headers": {"Range": "bytes=2-4"}}),
        ("GET", {"path": "/api/v1/artifacts/sha256:../../x"}),
        ("GET", {"path": "/api/v1/artifacts/nothing"}),
        ("GET", {"headers": {"Host": "elsewhere.example"}}),
        ("PUT", {"content": CONTENT, "headers": {"Origin": "https://elsewhere.example"}}),
        ("HEAD", {}),
        ("HEAD", {"stored": False}),
        ("HEAD", {"headers": {"Farhand-Job": "other"}}),
        ("PUT", {"content": CONTENT}),
        ("PUT", {"content": CONTENT, "stored": True}),
        ("PUT", {"content": b"other"}),
        ("PUT", {"content": CONTENT[:4], "headers": {"Content-Range": "bytes 0-3/10"}}),
        ("PUT", {"content": CONTENT[:4], "headers": {"Content-Range": "bytes 3-0/10"}}),
        ("PUT", {"content": CONTENT, "path": "/api/v1/artifacts/nothing"}),
        ("DELETE", {}),
        ("POST", {"content": b"{}"}),
    ],
)
def test_it_answers_as_the_described_one(
    tmp_path: Path, who: str | None, method: str, asked: dict[str, Any]
) -> None:
    ways = [_answer(tmp_path / lease, lease, who, method, **asked) for lease in (QUICK, DESCRIBED)]
    assert ways[0] == ways[1]


def test_it_is_taken_for_readable_claims_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []

    async def reading(digest: str, *_: Any) -> Any:
        taken.append(digest)
        raise quick_artifacts.HTTPException(418)

    monkeypatch.setattr(quick_artifacts, "read_artifact", reading)
    for lease, status in ((QUICK, 418), (DESCRIBED, 200), ("", 422)):
        assert _answer(tmp_path / f"at{lease}", lease, WORKER, "GET")[0] == status
    assert taken == [digest_of(CONTENT)]


def test_a_fault_of_our_own_is_told_as_such_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(*_: Any) -> Any:
        raise OSError("no space left on device")

    monkeypatch.setattr(quick_artifacts, "read_artifact", failing)
    status, content, headers, _ = _answer(tmp_path, QUICK, WORKER, "GET")
    assert (status, headers["x-content-type-options"]) == (500, "nosniff")
    assert b"no space" not in content
