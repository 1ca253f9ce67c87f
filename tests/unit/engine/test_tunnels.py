"""Tunnels that are asked for: which come, which are refused, and which are used again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from anyio import fail_after

from farhand.engine import tunnels as module
from farhand.engine.tunnels import IDLE_MAX, Tunnels
from farhand.errors import ServiceUnavailable
from farhand_worker.protocol import Tunnel

pytestmark = pytest.mark.anyio

SERVICE: Any = SimpleNamespace(name="llm", state="healthy")
HOLDING: Any = SimpleNamespace(job=SimpleNamespace(id="job"), lease=7)


class FakePipe:
    def __init__(self) -> None:
        self.closed = False
        self.over = asyncio.Event()

    async def receive(self) -> bytes:
        return b""

    async def send(self, data: bytes) -> None:
        """Goes nowhere."""

    def close(self) -> None:
        self.closed = True
        self.over.set()


def a_member(sent: list[Any], tunnels: bool = True) -> Any:
    return SimpleNamespace(name="box", tunnels=tunnels, link=SimpleNamespace(send=sent.append))


async def asked(tunnels: Tunnels, sent: list[Any]) -> tuple[asyncio.Task[Any], Tunnel]:
    task = asyncio.ensure_future(tunnels.open(SERVICE, a_member(sent), HOLDING))
    await asyncio.sleep(0)
    assert isinstance(sent[-1], Tunnel)
    return task, sent[-1]


async def test_the_connection_of_the_worker_that_was_asked_is_the_one() -> None:
    tunnels, pipe = Tunnels(), FakePipe()
    task, wanted = await asked(tunnels, [])
    assert (wanted.job, wanted.lease) == ("job", 7)
    assert not tunnels.arrived(wanted.id, "another", FakePipe())
    assert not tunnels.arrived("made up", "box", FakePipe())
    assert tunnels.arrived(wanted.id, "box", pipe)
    assert not tunnels.arrived(wanted.id, "box", FakePipe())
    assert await task is pipe
    assert not tunnels.arrived(wanted.id, "box", FakePipe())


async def test_what_a_worker_says_against_it_is_told() -> None:
    tunnels = Tunnels()
    task, wanted = await asked(tunnels, [])
    tunnels.refused(wanted.id, "another", "no")
    tunnels.refused(wanted.id, "box", "the service does not listen")
    with pytest.raises(ServiceUnavailable, match="'llm' is not reached: the service does not listen"):
        await task


async def test_a_worker_that_does_not_dial_is_waited_for_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DIAL_S", 0.01)
    tunnels = Tunnels()
    task, wanted = await asked(tunnels, [])
    with pytest.raises(ServiceUnavailable, match="did not dial"):
        await task
    assert not tunnels.arrived(wanted.id, "box", FakePipe())


async def test_a_worker_of_an_earlier_version_is_not_asked() -> None:
    with pytest.raises(ServiceUnavailable, match="upgrade it"):
        await Tunnels().open(SERVICE, a_member([], tunnels=False), HOLDING)


async def test_one_that_comes_when_nobody_wants_it_any_more_is_closed() -> None:
    tunnels, pipe = Tunnels(), FakePipe()
    task, wanted = await asked(tunnels, [])
    assert tunnels.arrived(wanted.id, "box", pipe)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert pipe.closed


async def test_a_connection_is_kept_for_the_same_start_alone_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tunnels, pipe = Tunnels(), FakePipe()
    other: Any = SimpleNamespace(job=HOLDING.job, lease=8)
    tunnels.keep(HOLDING, pipe)
    assert tunnels.idle(other) is None
    assert tunnels.idle(HOLDING) is pipe
    assert tunnels.idle(HOLDING) is None
    pipe.close()
    tunnels.keep(HOLDING, pipe)
    assert tunnels.idle(HOLDING) is None
    pipes = [FakePipe() for _ in range(IDLE_MAX + 1)]
    monkeypatch.setattr(module, "IDLE_S", 0.01)
    for each in pipes:
        tunnels.keep(HOLDING, each)
    assert pipes[-1].closed
    with fail_after(10):
        for each in pipes:
            await each.over.wait()
    assert tunnels.idle(HOLDING) is None
