"""The route that workers dial: who is turned away, and what each side is told."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.responses import Response

from farhand.engine.tokens import Identity
from farhand.errors import Unauthorized
from farhand.gateway.endpoint import Endpoint

pytestmark = pytest.mark.anyio


class Tokens:
    async def verify(self, text: str, address: str, session: str) -> Identity:
        if text != "viewer":
            raise Unauthorized("the token has expired; mint a new one on the server")
        return Identity("viewer", "viewer")


class Handshake:
    """A websocket that was not accepted yet."""

    def __init__(self, **headers: str) -> None:
        self.headers = headers
        self.client = SimpleNamespace(host="192.0.2.7")
        self.answer: Response | None = None

    async def send_denial_response(self, response: Response) -> None:
        self.answer = response


@pytest.mark.parametrize(
    ("headers", "status", "words"),
    [
        ({}, 401, "a worker's token is needed"),
        ({"authorization": "Basic eA=="}, 401, "a worker's token is needed"),
        ({"authorization": "Bearer old"}, 401, "the token has expired"),
        ({"authorization": "Bearer viewer"}, 403, "a token of role viewer attaches no worker"),
    ],
)
async def test_who_has_no_workers_token_is_told_why_and_so_is_the_log(
    headers: dict[str, str], status: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    handshake: Any = Handshake(**headers)
    services: Any = SimpleNamespace(tokens=Tokens())
    await Endpoint(services).attach(handshake)
    assert handshake.answer.status_code == status
    assert words in json.loads(handshake.answer.body)["detail"]
    assert f"192.0.2.7 is refused: {words}" in caplog.text
    assert "old" not in caplog.text
