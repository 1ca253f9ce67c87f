"""The event stream: what is told, to whom, and how often."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from farhand.engine.bus import Notice
from farhand.engine.roles import Identity
from farhand.web import stream
from farhand.web.stream import Pending, notices

from .fakes import FakeServices, make_run

pytestmark = pytest.mark.anyio
WHO = Identity("viewer", "anna", jti="1")


def test_notices_of_one_kind_about_one_run_are_one() -> None:
    pending = Pending()
    for _ in range(100):
        pending.add(Notice("logs", "a"))
    pending.add(Notice("run", "a", make_run("a", state="running")))
    pending.add(Notice("run", "a", make_run("a")))
    taken = pending.take()
    assert [notice.kind for notice in taken] == ["logs", "run"]
    assert taken[1].record.state == "completed"
    assert pending.take() == []


def test_a_stream_of_one_run_hears_of_that_run_alone(services: FakeServices) -> None:
    pending = Pending("a")
    assert pending.add(Notice("logs", "a"))
    assert not pending.add(Notice("logs", "b"))
    assert not pending.add(Notice("run", None, make_run("b")))
    assert not pending.add(Notice("worker", None, "gpu1"))
    assert pending.add(Notice("overflow"))


async def test_the_first_notice_leaves_at_once_and_the_stream_ends_with_the_bus(services: Any) -> None:
    events = notices(services, None, WHO)
    assert (await anext(events)).comment == "listening"
    waiting = asyncio.create_task(anext(events))
    await asyncio.sleep(0)
    services.bus.publish(Notice("run", "0run1", make_run()))
    event = await waiting
    assert event.event == "run"
    assert json.loads(event.data)["state"] == "completed"
    services.bus.close()
    with pytest.raises(StopAsyncIteration):
        await anext(events)


async def test_nothing_is_lost_while_a_stream_holds_back(
    services: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "EVERY_S", 0.01)
    events = notices(services, None, WHO)
    await anext(events)
    heard = []
    for number in range(5):
        services.bus.publish(Notice("logs", f"run{number}"))
        services.bus.publish(Notice("logs", f"run{number}"))
        heard.append(json.loads((await anext(events)).data)["run"])
    await events.aclose()
    assert heard == [f"run{number}" for number in range(5)]


async def test_a_reader_who_leaves_is_forgotten(services: Any) -> None:
    events = notices(services, None, WHO)
    await anext(events)
    await events.aclose()
    assert services.bus._queues == set()


@pytest.mark.parametrize("how", ["revoked", "expired"])
async def test_a_stream_ends_with_its_credential(services: Any, how: str) -> None:
    soon = time.time() + 0.05
    who = WHO if how == "revoked" else Identity("viewer", "anna", jti="1", expires_at=soon)
    events = notices(services, None, who)
    await anext(events)
    waiting = asyncio.create_task(anext(events))
    await asyncio.sleep(0)
    if how == "revoked":
        await services.tokens.rotate_key()
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(waiting, 5)
