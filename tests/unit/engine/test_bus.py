"""Notices reach every subscriber; a slow one holds up nobody."""

from __future__ import annotations

import pytest

from farhand.engine import bus as bus_module
from farhand.engine.bus import Bus, Notice

pytestmark = pytest.mark.anyio


async def test_every_subscriber_hears_what_is_published_from_then_on() -> None:
    bus = Bus()
    bus.publish(Notice("run", "before"))
    async with bus.subscribe() as first, bus.subscribe() as second:
        bus.publish(Notice("run", "r1"))
        bus.publish(Notice("logs", "r1"))
        for subscriber in (first, second):
            assert await anext(subscriber) == Notice("run", "r1")
            assert await anext(subscriber) == Notice("logs", "r1")


async def test_a_slow_subscriber_is_told_to_look_again_and_the_others_lose_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bus_module, "_BACKLOG_MAX", 3)
    bus = Bus()
    async with bus.subscribe() as slow, bus.subscribe() as quick:
        for number in range(4):
            bus.publish(Notice("run", str(number)))
            assert (await anext(quick)).run == str(number)
        bus.close()
        assert [notice async for notice in slow] == [Notice("overflow"), Notice("run", "3")]


async def test_a_backlog_never_grows_beyond_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus_module, "_BACKLOG_MAX", 10)
    bus = Bus()
    async with bus.subscribe() as slow:
        for number in range(1000):
            bus.publish(Notice("run", str(number)))
        bus.close()
        assert len([notice async for notice in slow]) <= 11


async def test_closing_ends_every_subscription_after_what_was_published() -> None:
    bus = Bus()
    async with bus.subscribe() as subscriber:
        bus.publish(Notice("run", "r1"))
        bus.close()
        assert [notice.run async for notice in subscriber] == ["r1"]


async def test_a_closed_bus_publishes_nothing_and_ends_new_subscriptions_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bus_module, "_BACKLOG_MAX", 1)
    bus = Bus()
    async with bus.subscribe() as earlier:
        bus.close()
        bus.publish(Notice("run", "late"))
        bus.publish(Notice("run", "later"))
        assert [notice async for notice in earlier] == []
    async with bus.subscribe() as later:
        assert [notice async for notice in later] == []


async def test_who_has_left_is_remembered_no_longer() -> None:
    bus = Bus()
    with pytest.raises(ZeroDivisionError):
        async with bus.subscribe():
            raise ZeroDivisionError
    assert not bus._queues
