"""What nobody waits for is done together, a moment later."""

from __future__ import annotations

import asyncio

import pytest

from farhand_worker import afterwards as module
from farhand_worker.afterwards import MANY, Afterwards

pytestmark = pytest.mark.anyio


async def test_it_is_done_in_its_order_and_not_at_once() -> None:
    done: list[int] = []
    last = asyncio.Event()
    afterwards = Afterwards()
    afterwards.do(done.append, 1)
    afterwards.do(done.append, 2)
    afterwards.do(last.set)
    assert done == []
    await asyncio.wait_for(last.wait(), 10)
    assert done == [1, 2]


async def test_who_looks_before_that_has_it_done_first() -> None:
    done: list[int] = []
    afterwards = Afterwards()
    afterwards.do(done.append, 1)
    afterwards.catch_up()
    assert done == [1]
    afterwards.do(done.append, 2)
    afterwards.close()
    assert done == [1, 2]


async def test_what_fails_keeps_nothing_else_from_being_done() -> None:
    last = asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context["exception"]))
    failed: list[BaseException] = []

    def fail() -> None:
        raise OSError("full")

    afterwards = Afterwards()
    afterwards.do(fail)
    afterwards.do(last.set)
    await asyncio.wait_for(last.wait(), 10)
    assert [str(error) for error in failed] == ["full"]


async def test_much_is_done_as_soon_as_who_gave_it_has_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AFTER_S", 1000.0)
    done: list[int] = []
    afterwards = Afterwards()
    for number in range(MANY + 3):
        afterwards.do(done.append, number)
    last = asyncio.Event()
    afterwards.do(last.set)
    assert done == []
    await asyncio.wait_for(last.wait(), 10)
    assert done == list(range(MANY + 3))
    afterwards.do(done.append, 0)
    afterwards.close()
