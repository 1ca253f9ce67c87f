"""What a lease takes is summed up from live leases, in the transaction that makes it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from farhand.lifecycle import Ending
from farhand.model import Ask, Job
from farhand.resources import Capacity
from farhand_worker import protocol
from tests.harness.stores import handed

if TYPE_CHECKING:
    from tests.contract.conftest import Story

pytestmark = pytest.mark.anyio

BOX = Capacity(4, cpus=8, gpus=2, ram_mb=1000, devices=("GPU-a", "GPU-b"))


async def asking(story: Story, **ask: Any) -> Job:
    """A queued run's job that asks for so much."""
    template = await story.run()
    run = await story.store.runs.get(template.run)
    assert run is not None
    other = replace(run, id=f"{run.id}x")
    job = replace(template, id=f"{other.id}-job", run=other.id, ask=Ask(**ask))
    return (await story.store.runs.create(other, job))[1]


async def lease(story: Story, capacity: Capacity = BOX, fell_back: bool = False, **ask: Any) -> Job | None:
    job = await asking(story, **ask)
    leased = await handed(story.store, job.id, "box", capacity, story.now, fell_back=fell_back)
    return None if leased is None else leased.job


@pytest.mark.parametrize(
    ("first", "second", "fits"),
    [
        ({"cpus": 6}, {"cpus": 3}, False),
        ({"cpus": 6}, {"cpus": 2}, True),
        ({"ram_mb": 600}, {"ram_mb": 600}, False),
        ({"gpus": 2}, {"gpus": 1}, False),
        ({"gpus": 2}, {"gpus": 0}, True),
        ({"gpus": 2}, {"cpus": 8}, True),
        ({}, {"cpus": 8}, True),
    ],
)
async def test_two_jobs_share_a_worker_as_long_as_their_amounts_fit(
    story: Story, first: dict[str, int], second: dict[str, int], fits: bool
) -> None:
    assert await lease(story, **first) is not None
    assert (await lease(story, **second) is not None) is fits


async def test_of_many_that_ask_at_once_as_many_are_leased_as_fit(story: Story) -> None:
    jobs = [await asking(story, cpus=3) for _ in range(6)]
    got = await asyncio.gather(*(handed(story.store, job.id, "box", BOX, story.now) for job in jobs))
    assert sum(leased is not None for leased in got) == 2


async def test_an_unknown_inventory_refuses_nothing(story: Story) -> None:
    job = await lease(story, Capacity(4), cpus=1000, gpus=3)
    assert job is not None
    assert job.devices == ()


async def test_devices_are_given_once_and_are_free_again_with_the_lease(story: Story) -> None:
    first, second = await lease(story, gpus=1), await lease(story, gpus=1)
    assert first is not None
    assert second is not None
    assert (first.devices, second.devices) == (("GPU-a",), ("GPU-b",))
    assert await lease(story, gpus=1) is None
    assert (await story.job(first.id)).devices == ("GPU-a",)
    await story.store.reports.end(first.id, first.lease or 0, Ending("stopped"), story.now)
    again = await story.job(first.id)
    assert (again.devices, again.last_worker) == ((), "box")
    third = await lease(story, gpus=1)
    assert third is not None
    assert third.devices == ("GPU-a",)


async def test_the_gpu_of_a_cancelled_run_is_free_when_its_attempt_has_ended_and_no_sooner(
    story: Story,
) -> None:
    """B062: however often it is cancelled and asked for again, there is one lease on one GPU."""
    one = replace(BOX, gpus=1, devices=("GPU-a",))
    first = await lease(story, one, gpus=1)
    for _ in range(3):
        assert first is not None
        await story.cancel(first.run)
        assert await story.state(first.run) == "cancelling"
        assert await lease(story, one, gpus=1) is None
        await story.store.reports.end(first.id, first.lease or 0, Ending("cancelled"), story.now)
        first = await lease(story, one, gpus=1)
        assert first is not None
        assert first.devices == ("GPU-a",)
        assert await lease(story, one, gpus=1) is None


async def test_who_falls_back_to_the_server_is_given_no_gpu(story: Story) -> None:
    job = await lease(story, replace(BOX, gpus=0, devices=()), fell_back=True, gpus=2, labels=("gpu",))
    assert job is not None
    assert job.devices == ()
    assert await lease(story, replace(BOX, gpus=0, devices=()), cpus=8) is not None


@pytest.mark.fault("3.28")
async def test_a_call_that_can_never_be_placed_fails_and_its_caller_hears_why(story: Story) -> None:
    parent = await story.running()
    ask = {"labels": [], "policy": "require", "runs_on": "any"}
    call = protocol.Call("k1", "fit", "m:fit", {"enc": "json", "text": "[[],{}]"}, ask, story.now)
    (job,) = (await story.report(parent, call)).changes.enqueued
    why = "waits for what its run holds"
    changes = await story.store.jobs.fail(job.id, "unplaceable", why, None, story.now)
    assert changes.dequeued == (job.id,)
    (outcome,) = changes.outcomes
    assert (outcome.parent_job, outcome.body["state"]) == (parent.job.id, "failed")
    assert outcome.body["error"]["type"] == "Unplaceable"
    assert outcome.body["error"]["message"] == why
