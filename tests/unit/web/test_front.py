"""Before the application is loaded: the process says that it lives, and everything else waits."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest
from starlette.testclient import TestClient, WebSocketDenialResponse

from farhand.web.app import create_app
from farhand.web.front import Front
from farhand.web.settings import WebSettings

pytestmark = pytest.mark.anyio

SETTINGS = WebSettings(base_path="/x")


def a_front() -> Front:
    return Front(SETTINGS, "/attach", _attached)


def asking(front: Front) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(front), base_url="http://localhost")


@pytest.mark.parametrize("path", ["/healthz", "/x/healthz"])
async def test_the_health_check_is_answered_at_once_as_the_application_will_answer_it(path: str) -> None:
    front = a_front()
    async with asking(front) as client:
        before = await client.get(path)
        front.open(create_app(None, SETTINGS))  # type: ignore[arg-type]
        after = await client.get(path)
    assert before.status_code == after.status_code == 200
    assert before.content == after.content
    assert before.headers == after.headers


async def test_a_foreign_host_is_refused_from_the_beginning() -> None:
    async with asking(a_front()) as client:
        answer = await client.get("/healthz", headers={"host": "rebound.example"})
    assert (answer.status_code, answer.json()["code"]) == (403, "wrong_host")


async def test_whatever_else_is_asked_waits_for_the_application() -> None:
    front = a_front()
    async with asking(front) as client:
        waiting = [asyncio.create_task(client.request(how, "/a")) for how in ("GET", "POST")]
        await asyncio.sleep(0)
        front.open(_named)
        assert [(await answer).text for answer in waiting] == ["GET", "POST"]


@pytest.mark.parametrize("path", ["/attach", "/x/attach"])
def test_workers_are_let_in_before_the_application_has_come(path: str) -> None:
    with TestClient(a_front()).websocket_connect(path, headers={"host": "localhost"}) as worker:
        assert worker.receive_text() == "welcome"


def test_a_worker_of_a_foreign_page_is_refused() -> None:
    strange = {"host": "localhost", "origin": "http://elsewhere.example", "cookie": "a=b"}
    with (
        pytest.raises(WebSocketDenialResponse) as refused,
        TestClient(a_front()).websocket_connect("/attach", headers=strange),
    ):
        pass
    assert refused.value.status_code == 403


async def _attached(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.send", "text": "welcome"})


async def _named(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["method"].encode()})
