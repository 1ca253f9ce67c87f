"""1.12: a worker without the right to be one is told so, once."""

from __future__ import annotations

import time

import jwt
import pytest

from tests.harness.deployment import Deployment
from tests.harness.waiting import eventually


@pytest.mark.fault("1.12")
@pytest.mark.parametrize(
    ("kind", "sentence"),
    [("wrong", "not one of this server"), ("expired", "expired"), ("missing", "a token is needed")],
)
def test_a_worker_without_a_valid_token_ends_with_the_reason(
    standing: Deployment, kind: str, sentence: str
) -> None:
    token = {"wrong": "not-a-token", "missing": ""}.get(kind) or ""
    if kind == "expired":
        token = standing.token(kind, [], expires_s=0.01)
        eventually(lambda: _is_expired(token), what="the token has expired")
    worker = standing.worker(kind, token=token, wait=False)
    code = worker.wait()
    assert code == (2 if kind == "missing" else 3), worker.text()
    assert worker.text().count(sentence) == 1, worker.text()
    assert standing.worker_state(kind) == ""


def _is_expired(token: str) -> bool:
    claims = jwt.decode(token, options={"verify_signature": False, "verify_exp": False})
    return claims["exp"] < time.time()


@pytest.mark.fault("1.12")
def test_a_worker_whose_token_is_revoked_is_dropped_at_once_and_stays_away(standing: Deployment) -> None:
    worker = standing.worker("revoked")
    (token,) = [each for each in standing.items("/workers/tokens") if each["name"] == worker.name]
    standing.post(f"/workers/tokens/{token['jti']}/revoke")
    assert worker.wait() == 3
    assert "revoked" in worker.text()
