"""Flavors: a job is made with the amounts that its flavor has at that moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from farhand.errors import UnknownFlavor
from farhand.model import Ask, Flavor
from farhand.store import Store
from farhand_worker import protocol

if TYPE_CHECKING:
    from tests.contract.conftest import Story

pytestmark = pytest.mark.anyio

SMALL = Flavor("gpu-small", 8, 1, 65536, 1.0, "ada")


def call(story: Story, flavor: str) -> protocol.Call:
    ask = {"labels": [], "policy": "require", "runs_on": "any", "flavor": flavor, "cpus": 2}
    return protocol.Call("k1", "fit", "m:fit", {"enc": "json", "text": "[[],{}]"}, ask, story.now)


async def test_flavors_are_set_listed_changed_and_deleted(store: Store) -> None:
    assert await store.flavors.set(SMALL)
    assert not await store.flavors.set(Flavor("gpu-small", None, 2, None, 2.0, "bob"))
    assert await store.flavors.set(Flavor("a", 1, None, None))
    assert [(f.name, f.cpus, f.gpus, f.ram_mb) for f in await store.flavors.list()] == [
        ("a", 1, None, None),
        ("gpu-small", None, 2, None),
    ]
    assert await store.flavors.delete("a")
    assert not await store.flavors.delete("a")


async def test_an_ask_has_the_amounts_of_its_flavor_where_it_gives_none(store: Store) -> None:
    await store.flavors.set(SMALL)
    asked = await store.flavors.resolve(Ask(flavor="gpu-small", cpus=2))
    assert (asked.cpus, asked.gpus, asked.ram_mb) == (2, 1, 65536)
    assert await store.flavors.resolve(Ask(cpus=3)) == Ask(cpus=3)
    with pytest.raises(UnknownFlavor, match="farhand flavors set large"):
        await store.flavors.resolve(Ask(flavor="large"))


async def test_a_placed_call_is_made_with_the_amounts_of_its_flavor(story: Story) -> None:
    await story.store.flavors.set(SMALL)
    parent = await story.running()
    recorded = await story.report(parent, call(story, "gpu-small"))
    (job,) = recorded.changes.enqueued
    assert (job.ask.cpus, job.ask.gpus, job.ask.ram_mb, job.depth) == (2, 1, 65536, 1)


async def test_a_call_of_an_unknown_flavor_fails_at_once_and_says_what_to_do(story: Story) -> None:
    parent = await story.running()
    recorded = await story.report(parent, call(story, "large"))
    assert recorded.changes.enqueued == ()
    (outcome,) = recorded.changes.outcomes
    assert outcome.body["state"] == "failed"
    assert outcome.body["error"]["type"] == "UnknownFlavor"
    assert "farhand flavors set large" in outcome.body["error"]["message"]
