"""A moment that is put off again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from farhand_worker.moments import Moment

pytestmark = pytest.mark.anyio

SOON_S = 0.01


async def test_it_comes_once_and_does_what_it_was_last_set_to() -> None:
    came: list[str] = []
    done = asyncio.Event()
    moment = Moment(SOON_S)
    moment.set(lambda: came.append("first"))
    moment.set(done.set)
    assert moment.is_set
    await asyncio.wait_for(done.wait(), 10)
    assert came == []
    assert not moment.is_set


async def test_it_comes_so_long_after_it_was_last_set() -> None:
    loop = asyncio.get_running_loop()
    moment, done = Moment(3 * SOON_S), asyncio.Event()
    moment.set(done.set)
    again = asyncio.Event()
    loop.call_later(2 * SOON_S, again.set)
    await again.wait()
    set_at = loop.time()
    moment.set(done.set)
    await asyncio.wait_for(done.wait(), 10)
    assert loop.time() - set_at >= 3 * SOON_S - 0.001


@pytest.mark.parametrize("end", [Moment.clear, Moment.close])
async def test_one_that_is_cleared_does_not_come(end: Callable[[Moment], None]) -> None:
    came: list[str] = []
    moment, other = Moment(SOON_S), Moment(2 * SOON_S)
    moment.set(lambda: came.append("it"))
    end(moment)
    done = asyncio.Event()
    other.set(done.set)
    await asyncio.wait_for(done.wait(), 10)
    assert came == []


async def test_one_that_was_cleared_can_be_set_again() -> None:
    moment, done = Moment(SOON_S), asyncio.Event()
    moment.set(lambda: None)
    moment.clear()
    moment.set(done.set)
    await asyncio.wait_for(done.wait(), 10)
