"""Who is lost, who is offline, and when a job is taken back; on a clock that the test moves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from anyio import fail_after
from anyio.lowlevel import checkpoint

from farhand.engine import attachment as attachment_module
from farhand.engine import rescuer as rescuer_module
from farhand.engine.member import AWAITED, LOST, OFFLINE, ONLINE, Member
from farhand.engine.services import Services
from farhand.errors import StoreFailed
from farhand.lifecycle import Ending
from farhand.model import Ask, JobSettings
from farhand.store import Store
from farhand.store.answers import Answer
from farhand_worker import protocol
from tests.unit.engine.records import Clock, a_hello
from tests.unit.engine.world import TIMES, World

pytestmark = pytest.mark.anyio

EXPIRY_S = TIMES.lease_s + TIMES.margin_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(rescuer_module, "time", clock)
    monkeypatch.setattr(attachment_module, "time", clock)
    return clock


@pytest.fixture
async def world(clock: Clock, store: Store) -> World:
    return World(store)


async def test_three_missing_heartbeats_make_a_worker_lost(world: World, clock: Clock) -> None:
    await world.attach()
    box = world.fleet.member("box")
    clock.now += 3 * TIMES.heartbeat_s - 0.01
    await world.look()
    assert box.state == ONLINE
    clock.now += 0.01
    await world.look()
    assert box.state == LOST
    assert await world.event_kinds() == ["worker.attached", "worker.lost"]


async def test_a_socket_closed_for_some_seconds_makes_a_worker_lost(world: World, clock: Clock) -> None:
    _, link = await world.attach()
    box = world.fleet.member("box")
    clock.now += 1.0
    world.attachments.closed(box, link)
    clock.now += TIMES.lost_s - 0.01
    await world.look()
    assert box.state == ONLINE, "a dropped socket is not a lost worker"
    clock.now += 0.01
    await world.look()
    assert box.state == LOST


async def test_an_earlier_sessions_socket_closing_means_nothing(world: World) -> None:
    _, earlier = await world.attach()
    _, link = await world.attach()
    box = world.fleet.member("box")
    world.attachments.closed(box, earlier)
    assert box.link is link
    assert box.closed_at is None


async def test_what_was_taken_back_is_queued_though_who_took_it_back_has_given_up(world: World) -> None:
    box, _, job = await world.worker_with_job()
    go_on = world.block_writes()
    ending = Ending("stopped", "worker_left", "stopped")
    taking = asyncio.create_task(world.rescuer.take_back(box, list(box.holdings.values()), ending))
    await checkpoint()
    taking.cancel()
    go_on.set()
    with fail_after(5):
        while not world.queue.knows(job.id):
            await checkpoint()
    assert box.busy == 0


async def test_a_job_is_taken_back_when_lease_and_margin_are_over_and_not_before(
    world: World, clock: Clock
) -> None:
    """B013, B014: a lease that is renewed is never given away; one that is not is, once."""
    box, link, job = await world.worker_with_job()
    job = await world.started(job)
    for _ in range(10):
        clock.now += EXPIRY_S - 0.01
        await world.look()
        assert (await world.job(job)).state == "running"
        world.attachments.heard(box)
    clock.now += EXPIRY_S
    await world.look()
    after = await world.job(job)
    assert (after.state, after.lease, after.crashes, after.retries_used) == ("queued", None, 1, 0)
    assert box.state == OFFLINE
    assert box.busy == 0
    assert link.closed == "its leases have run out"
    run = await world.run_of(job)
    assert (run.state, run.reason) == ("queued", "worker_lost")
    assert "worker went away mid-call" in run.message


async def test_the_link_is_closed_before_the_job_is_taken_back(world: World, clock: Clock) -> None:
    """Once nothing more is acknowledged the old holder cannot go on; only then may another start."""
    box, link, _ = await world.worker_with_job()
    order: list[str] = []
    end = world.store.reports.end

    def ending(*arguments: Any) -> Answer[Any]:
        order.append(f"taken back, link closed: {link.closed is not None and box.link is None}")
        return end(*arguments)

    world.store.reports.end = ending  # type: ignore[method-assign]
    clock.now += EXPIRY_S
    await world.look()
    assert order == ["taken back, link closed: True"]


async def test_a_dead_worker_is_declared_once_and_its_job_taken_back_once(world: World, clock: Clock) -> None:
    """B010: one crash event, one crash used, however often the deadlines are looked at."""
    _, _, job = await world.worker_with_job()
    job = await world.started(job)
    for _ in range(200):
        clock.now += 1.0
        await world.look()
    assert await world.event_kinds() == ["worker.attached", "worker.lost", "worker.offline"]
    assert (await world.job(job)).crashes == 1
    assert len(await world.store.runs.attempts(job.run)) == 1


async def test_a_worker_lost_a_second_time_is_said_a_second_time(world: World, clock: Clock) -> None:
    await world.attach()
    box = world.fleet.member("box")
    for _ in range(2):
        clock.now += 3 * TIMES.heartbeat_s
        await world.look()
        assert box.state == LOST
        world.attachments.heard(box)
        world.attachments.back(box)
        assert box.state == ONLINE
    assert (await world.event_kinds()).count("worker.lost") == 2


async def test_a_worker_that_comes_back_in_time_keeps_its_job(world: World, clock: Clock) -> None:
    """B024: no replacement is started that has to be stopped again."""
    box, link, job = await world.worker_with_job()
    world.attachments.closed(box, link)
    clock.now += EXPIRY_S - 0.01
    await world.look()
    assert box.state == LOST
    await world.attach(a_hello(held=[world.held(job)]))
    clock.now += 1.0
    await world.look()
    assert box.state == ONLINE
    assert await world.job(job) == job


async def test_a_take_back_that_fails_is_tried_again_until_it_is_written(world: World, clock: Clock) -> None:
    """B020: a store that is out of order for a while strands nothing."""
    box, _, job = await world.worker_with_job()
    clock.now += EXPIRY_S
    failed = world.fail_writes(StoreFailed(), times=4)
    while len(failed) < 4:
        await world.look()
        assert box.state == OFFLINE
        assert box.busy == 1
    await world.look()
    assert (await world.job(job)).state == "queued"
    assert box.busy == 0


async def test_one_worker_whose_state_cannot_be_stored_holds_up_no_other(world: World, clock: Clock) -> None:
    await world.attach(a_hello("one"))
    await world.attach(a_hello("two"))
    clock.now += 3 * TIMES.heartbeat_s
    world.fail_writes(StoreFailed())
    await world.look()
    assert [world.fleet.member(name).state for name in ("one", "two")] == [LOST, LOST]


async def test_what_could_not_be_settled_is_looked_at_again_after_a_while_and_not_at_once(
    world: World, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deadline that stays due must not make the loop spin."""
    await world.attach()
    waits: list[float | None] = []

    class Enough(BaseException):
        pass

    async def wait(timeout_s: float | None = None) -> None:
        waits.append(timeout_s)
        if len(waits) > 5:
            raise Enough
        clock.now += timeout_s or 0.0

    monkeypatch.setattr(world.rescuer._wakeup, "wait", wait)
    async with world.fleet.member("box").gate:
        with pytest.raises(Enough):
            await world.rescuer._work()
    assert waits[0] == pytest.approx(3 * TIMES.heartbeat_s)
    assert waits[1:] == [pytest.approx(1.0)] * 5


async def test_after_a_stall_what_arrived_meanwhile_is_read_first(
    world: World, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    box, _, job = await world.worker_with_job()
    looks = 0

    class Enough(BaseException):
        pass

    async def wait(timeout_s: float | None = None) -> None:
        nonlocal looks
        looks += 1
        if looks > 1:
            raise Enough
        clock.now += EXPIRY_S + 10.0  # this process stood still

    async def sleep(_: float) -> None:
        world.attachments.heard(box)  # the heartbeat that lay unread

    monkeypatch.setattr(world.rescuer._wakeup, "wait", wait)
    monkeypatch.setattr(rescuer_module.asyncio, "sleep", sleep)
    with pytest.raises(Enough):
        await world.rescuer._work()
    assert box.state == ONLINE
    assert await world.job(job) == job


async def test_the_loop_wakes_by_itself_when_a_deadline_is_due(store: Store) -> None:
    world = World(store, TIMES.scaled(0.01))
    await world.attach()
    async with world.bus.subscribe() as notices:
        world.rescuer.begin()
        try:
            with fail_after(10):
                states = set[str]()
                while OFFLINE not in states:
                    await anext(notices)
                    states.add(world.fleet.member("box").state)
        finally:
            await world.rescuer.stop()
    assert await world.event_kinds() == ["worker.attached", "worker.lost", "worker.offline"]


# ---------------------------------------------------------------- after a start of the server


async def restarted(world: World) -> World:
    """The services of a server that was started again on this store."""
    again = World(world.store)
    for job in await world.store.jobs.held():
        assert job.worker is not None
        assert job.lease is not None
        again.fleet.hold(again.fleet.member(job.worker), job, job.lease)
    return again


async def test_after_a_start_an_ordinary_job_waits_for_its_worker_and_a_strict_one_for_its_lease(
    world: World, clock: Clock
) -> None:
    """B021: a start takes nothing from a worker that lives and is on its way back."""
    await world.attach()
    ordinary = await world.start_run()
    strict = await world.start_run(settings=JobSettings(strict_lease=True))
    await world.hand_over()
    again = await restarted(world)
    box = again.fleet.member("box")
    assert box.state == AWAITED
    clock.now += EXPIRY_S - 0.01
    await again.look()
    assert box.busy == 2
    clock.now += 0.01
    await again.look()
    assert (await world.job(strict)).state == "queued"
    assert (await world.job(ordinary)).state == "leased"
    assert box.state == AWAITED
    clock.now += TIMES.reattach_s - EXPIRY_S
    await again.look()
    assert (await world.job(ordinary)).state == "queued"
    assert box.state == OFFLINE


async def test_a_worker_that_comes_back_after_a_start_goes_on_with_the_same_attempt(
    world: World, clock: Clock
) -> None:
    _, _, job = await world.worker_with_job()
    job = await world.started(job)
    again = await restarted(world)
    clock.now += TIMES.reattach_s - 1.0
    await again.attach(a_hello(held=[world.held(job, started_at=2.0)]))
    clock.now += EXPIRY_S - 1.0
    await again.look()
    assert await world.job(job) == job
    assert len(await world.store.runs.attempts(job.run)) == 1


async def test_a_start_finds_in_the_store_what_is_queued_and_who_holds_what(
    world: World, store: Store, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """B007: a start reconciles everything that was under way."""
    _, _, held = await world.worker_with_job()
    idle_hello = a_hello("idle", labels=["gpu"], inventory={"cpus": 8, "gpus": 1}, service_host="idle.lan")
    await world.attach(idle_hello, labels=("gpu",))
    queued = await world.start_run(ask=held.ask, priority=1)
    services = Services(store, tmp_path_factory.mktemp("home"), protocol.Times(), {})
    await services.start()
    try:
        assert [job.id for job in services.queue] == [queued.id]
        box, idle = services.fleet.member("box"), services.fleet.member("idle")
        assert [holding.job.id for holding in box.holdings.values()] == [held.id]
        assert (box.state, box.instance, box.parallel) == (AWAITED, "i1", 2)
        assert (idle.state, idle.labels, idle.service_host) == (AWAITED, {"gpu"}, "idle.lan")
        assert (idle.capacity.cpus, idle.capacity.gpus, idle.capacity.ram_mb) == (8, 1, None)
    finally:
        await services.stop()


async def test_what_prefers_a_worker_is_looked_at_again_when_that_is_offline(
    world: World, clock: Clock
) -> None:
    """Also one that held nothing, whose end frees nothing."""
    await world.attach(a_hello("server"))
    _, link = await world.attach(a_hello("gpu-1"), ("gpu",))
    world.attachments.closed(world.fleet.member("gpu-1"), link)
    job = await world.start_run(ask=Ask(labels=("gpu",), policy="prefer"))
    await world.hand_over()
    assert (await world.job(job)).state == "queued"
    world.wakeup.is_set = False
    clock.now += EXPIRY_S
    world.attachments.heard(world.fleet.member("server"))
    await world.look()
    await world.look()
    assert world.fleet.member("gpu-1").state == OFFLINE
    assert world.wakeup.is_set
    await world.hand_over()
    assert (await world.job(job)).worker == "server"


async def test_a_worker_that_was_offline_before_a_start_is_still_named_by_what_waits_for_it(
    world: World, store: Store, tmp_path_factory: pytest.TempPathFactory
) -> None:
    _, link = await world.attach(a_hello("gpu-1"), ("gpu",))
    await world.attachments.leave(world.fleet.member("gpu-1"), link, "stopped")
    job = await world.start_run(ask=Ask(labels=("gpu",)))
    services = Services(store, tmp_path_factory.mktemp("home"), protocol.Times(), {})
    await services.start()
    try:
        assert (services.fleet.member("gpu-1").state, services.fleet.candidates()) == (OFFLINE, [])
        services.dispatcher.release()
        with fail_after(10):
            while "gpu-1 has label gpu" not in services.queue.reason_of_job(job.id):
                await checkpoint()
        assert "and is offline since 2023-" in services.queue.reason_of_job(job.id)
    finally:
        await services.stop()


async def test_one_worker_that_cannot_be_looked_at_holds_up_no_other(
    world: World, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        await world.attach(a_hello(name))
    clock.now += 3 * TIMES.heartbeat_s
    examine = world.rescuer._examine

    async def odd(member: Member) -> None:
        if member.name == "one":
            raise ZeroDivisionError("a mistake")
        await examine(member)

    monkeypatch.setattr(world.rescuer, "_examine", odd)
    await world.rescuer._examine_all()
    assert [world.fleet.member(name).state for name in ("one", "two")] == [ONLINE, LOST]
