"""Workers as people look at them."""

from __future__ import annotations

import pytest

from farhand.engine.fleet import AWAITED, LOST, OFFLINE, ONLINE
from farhand.engine.workers import Workers
from farhand.errors import NotFound
from tests.unit.engine.records import a_hello
from tests.unit.engine.world import World

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("state", "shown"), [(ONLINE, "online"), (LOST, "lost"), (AWAITED, "lost"), (OFFLINE, "offline")]
)
async def test_a_worker_is_shown_as_this_server_knows_it(world: World, state: str, shown: str) -> None:
    await world.attach()
    world.fleet.member("box").state = state
    assert (await Workers(world.store, world.fleet).get("box")).state == shown


async def test_workers_are_listed_by_name_those_of_earlier_days_too(world: World) -> None:
    await world.attach(a_hello("zoe"))
    await world.attach(a_hello("ann"))
    earlier = Workers(world.store, World(world.store).fleet)
    assert [worker.name for worker in await earlier.list()] == ["ann", "zoe"]


async def test_a_worker_was_last_seen_when_it_was_last_heard(world: World) -> None:
    await world.attach()
    workers = Workers(world.store, world.fleet)
    before = (await workers.get("box")).last_seen_at
    box = world.fleet.member("box")
    assert box.heard_at is not None
    box.heard_at -= 100.0
    after = (await workers.get("box")).last_seen_at
    assert before is not None
    assert after == pytest.approx(before - 100.0, abs=5.0)


async def test_an_unknown_worker_is_named(world: World) -> None:
    with pytest.raises(NotFound, match="there is no worker 'nope'"):
        await Workers(world.store, world.fleet).get("nope")
