"""Callers of an application, and what they are answered."""

from __future__ import annotations

import hashlib
from typing import Any

from starlette.testclient import TestClient


def problem_of(answer: Any) -> tuple[int, str]:
    """The status and code of an error, which must be a problem document with all its members."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    problem = answer.json()
    assert problem["status"] == answer.status_code
    assert problem["title"]
    assert problem["detail"]
    return answer.status_code, problem["code"]


def caller(app: Any, token: str | None = None, **headers: str) -> TestClient:
    """Calls with a token, or with none."""
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    return TestClient(app, base_url="http://127.0.0.1:8420", headers=headers, raise_server_exceptions=False)


def signed_in(app: Any) -> TestClient:
    """A browser that has opened a sign-in link."""
    browser = caller(app)
    answer = browser.get(f"/{app.state.sessions.link()}")
    assert answer.url.path == "/"
    return browser


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
