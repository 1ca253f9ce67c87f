"""What memory and store say of jobs, where they differ: at the second look the store has its way."""

from __future__ import annotations

import logging

import pytest

from farhand.engine.reconciler import Reconciler
from farhand.store import Store
from tests.unit.engine.world import World

pytestmark = pytest.mark.anyio


@pytest.fixture
async def world(store: Store) -> World:
    return World(store)


@pytest.fixture
async def reconciler(world: World) -> Reconciler:
    return Reconciler(world.store, world.queue, world.fleet, world.rescuer, world.wakeup)


async def test_a_job_that_is_queued_in_the_store_alone_is_in_the_queue_after_the_second_look(
    world: World, reconciler: Reconciler, caplog: pytest.LogCaptureFixture
) -> None:
    job, other = await world.start_run(), await world.start_run()
    world.queue.remove(job.id)
    await reconciler.look()
    assert not world.queue.knows(job.id), "it may be on its way"
    world.wakeup.is_set = False
    await reconciler.look()
    assert world.wakeup.is_set
    assert world.queue.knows(job.id)
    assert [r.levelno for r in caplog.records if job.id in r.message] == [logging.ERROR]
    _, link = await world.attach()
    await world.hand_over()
    assert {assign.job for assign in link.sent} == {job.id, other.id}


async def test_a_lease_that_only_the_store_knows_is_held_again_and_ends_with_the_workers(
    world: World, reconciler: Reconciler
) -> None:
    box, _, job = await world.worker_with_job()
    world.fleet.release(job.id, job.lease or 0)
    await reconciler.look()
    assert box.busy == 0
    await reconciler.look()
    assert box.busy == 1
    assert box.holdings[job.lease or 0].job == job


async def test_a_lease_that_the_store_does_not_know_takes_no_slot_after_the_second_look(
    world: World, reconciler: Reconciler
) -> None:
    box, _, job = await world.worker_with_job()
    world.fleet.hold(box, job, 4711)
    await reconciler.look()
    assert list(box.holdings) == [4711]
    await reconciler.look()
    assert list(box.holdings) == []
    await reconciler.look()
    await reconciler.look()
    assert list(box.holdings) == [job.lease], "which is what the store has"


async def test_what_agrees_and_what_is_on_its_way_is_left_alone(
    world: World, reconciler: Reconciler, caplog: pytest.LogCaptureFixture
) -> None:
    await world.worker_with_job()
    promised = await world.start_run()
    go_on = world.block_writes()
    world.queue.take(promised)
    world.fleet.member("box").promise(promised)
    for _ in range(3):
        await reconciler.look()
    assert not world.queue.knows(promised.id)
    go_on.set()
    assert caplog.records == []
