"""A callback that breaks off is noticed by whoever has to know; what ends otherwise is only told."""

from __future__ import annotations

import asyncio

import pytest

from farhand_worker.mishaps import notice
from farhand_worker.moments import Moment

pytestmark = pytest.mark.anyio


def _breaks() -> None:
    raise ZeroDivisionError("a mistake")


async def test_what_breaks_off_a_callback_is_told_and_noticed(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    failed: asyncio.Future[BaseException | None] = loop.create_future()
    notice(loop, failed.set_result)
    Moment(0.0).set(_breaks)
    assert isinstance(await failed, ZeroDivisionError)
    assert "a mistake" in caplog.text


async def test_what_goes_wrong_within_the_loop_is_only_told(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    failed: list[BaseException | None] = []
    notice(loop, failed.append)
    loop.call_soon(_breaks)
    await asyncio.sleep(0)
    assert not failed
    assert "a mistake" in caplog.text


async def test_what_a_connection_ends_with_is_only_told(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    failed: list[BaseException | None] = []
    notice(loop, failed.append)
    loop.call_exception_handler({"message": "a connection broke", "exception": OSError(), "transport": None})
    assert not failed
    assert "a connection broke" in caplog.text
