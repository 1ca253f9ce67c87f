"""Flows by their names: what is said where there is none, and who is asked before that is said."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from farhand.engine.flows import Flows
from farhand.engine.lookout import Lookout
from farhand.errors import NotFound
from farhand.model import Project, Trouble

from .records import FLOW
from .world import World

pytestmark = pytest.mark.anyio


@pytest.fixture
async def lookout(world: World) -> Lookout:
    await world.store.flows.replace("default", [FLOW, replace(FLOW, name="fit")], 1.0)
    return Lookout(world.store)


class Served:
    """A directory in which more and more flows are found, each time somebody asks for what is new."""

    def __init__(self, world: World, *names: str, reading: bool = False) -> None:
        self.asked = 0
        self.reading = reading
        self._world = world
        self._names = names

    async def news(self) -> AsyncIterator[None]:
        self.asked += 1
        for count in range(1, len(self._names) + 1):
            flows = [replace(FLOW, name=name) for name in self._names[:count]]
            await self._world.store.flows.replace("default", flows, 2.0)
            yield


async def test_an_unknown_flow_is_refused_naming_those_there_are(lookout: Lookout) -> None:
    with pytest.raises(NotFound, match="there is no flow 'nope'; this server has: fit, weather"):
        await lookout.find("nope")


async def test_an_unknown_flow_is_told_what_may_have_been_meant(lookout: Lookout, world: World) -> None:
    with pytest.raises(NotFound, match=r"there is no flow 'wether'; did you mean 'weather'\?$"):
        await lookout.find("wether")
    troubles = (Trouble("late.py", "SyntaxError: no"), *(Trouble(f"b{n}.py", "no") for n in range(4)))
    await world.store.projects.replace(Project("sums", "served", "/", "", 0, 0, troubles), [], [], 1.0)
    read = r"late\.py \(SyntaxError: no\), b0\.py \(no\), b1\.py \(no\), and 2 more$"
    words = f"this server has: fit, weather; what could not be read: {read}"
    with pytest.raises(NotFound, match=words):
        await lookout.find("late")
    with pytest.raises(NotFound, match=words):
        await Flows(world.store, lookout).get("late")


async def test_a_flow_that_is_not_known_is_looked_for_where_flows_are_written(
    lookout: Lookout, world: World
) -> None:
    lookout.directory = served = Served(world, "weather", "late", "later")
    assert (await lookout.find("weather")).name == "weather"
    assert served.asked == 0
    assert (await lookout.find("late")).name == "late"
    assert served.asked == 1
    with pytest.raises(NotFound, match=r"this server has: late, later, weather$"):
        await lookout.find("nope")


async def test_a_flow_whose_file_came_back_is_found_and_one_that_is_gone_can_still_be_shown(
    lookout: Lookout, world: World
) -> None:
    await world.store.flows.replace("default", [], 2.0)
    lookout.directory = served = Served(world)
    assert not (await Flows(world.store, lookout).get("fit")).present
    assert served.asked == 0
    with pytest.raises(NotFound):
        await lookout.find("fit")
    lookout.directory = Served(world, "fit")
    assert (await lookout.find("fit")).present


async def test_whoever_asks_before_all_is_read_is_told_to_ask_again(lookout: Lookout, world: World) -> None:
    lookout.directory = Served(world, reading=True)
    with pytest.raises(NotFound, match=r"; files that have changed are still being read, ask again$"):
        await lookout.find("nope")
