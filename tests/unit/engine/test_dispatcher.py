"""A free slot and a queued job become an attempt, once, and nothing is lost on the way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from anyio import Event, fail_after

from farhand.engine import dispatcher as dispatcher_module
from farhand.engine import handover as handover_module
from farhand.engine.member import ONLINE
from farhand.errors import StoreFailed
from farhand.model import Ask, Job, JobSettings
from farhand.store.answers import Answer, failed, succeeded
from farhand_worker import protocol
from tests.unit.engine.records import FakeLink, a_hello
from tests.unit.engine.world import World

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def no_waiting_between_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher_module, "RETRY_S", 0.0)
    monkeypatch.setattr(handover_module, "RETRY_S", 0.0)


def assigned(link: FakeLink) -> list[str]:
    return [assign.job for assign in link.of(protocol.Assign)]


async def attempts(world: World, job: Job) -> int:
    return len(await world.store.runs.attempts(job.run))


async def test_an_assign_says_all_that_an_agent_needs(world: World) -> None:
    _, link = await world.attach()
    job = await world.start_run(settings=JobSettings(timeout_s=9.0, strict_lease=True))
    await world.hand_over()
    leased = await world.job(job)
    assert link.sent == [
        protocol.Assign(
            job=job.id,
            lease=leased.lease or 0,
            attempt=1,
            kind="run",
            run=job.run,
            flow="weather",
            entry="weather:weather",
            args={"enc": "json", "text": "{}"},
            bundle=job.bundle,
            timeout_s=9.0,
            strict=True,
        )
    ]
    assert link.expected == [(job.id, leased.lease)]
    assert world.fleet.member("box").busy == 1
    assert (await world.run_of(job)).state == "starting"


async def test_jobs_are_handed_over_in_order_and_no_slot_twice(world: World) -> None:
    _, link = await world.attach(a_hello(parallel=2))
    jobs = [await world.start_run(age_at=float(age)) for age in (3, 1, 2)]
    urgent = await world.start_run(age_at=9.0, priority=1)
    await world.hand_over()
    assert assigned(link) == [urgent.id, jobs[1].id]
    assert world.fleet.member("box").busy == 2
    assert len(world.queue) == 2


async def test_a_job_that_waits_for_a_label_stands_in_nobodys_way_and_says_why(world: World) -> None:
    """B060, B067."""
    _, link = await world.attach()
    stuck = await world.start_run(ask=Ask(labels=("gpuu",)), priority=9)
    job = await world.start_run()
    await world.hand_over()
    assert assigned(link) == [job.id]
    assert world.queue.reason_of_run(stuck.run) == (
        "waits for label gpuu; no attached worker could ever take it: box has no label gpuu"
    )


async def test_nothing_is_handed_over_before_the_release(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, link = await world.attach()
    await world.start_run()
    looked = Event()

    async def wait(timeout_s: float | None = None) -> None:
        looked.set()
        await Event().wait()

    monkeypatch.setattr(world.wakeup, "wait", wait)
    world.dispatcher.start()
    with fail_after(5):
        await looked.wait()
    await world.dispatcher.stop()
    await world.dispatcher.settle()
    assert link.sent == []
    assert len(world.queue) == 1


async def test_during_a_blip_a_job_waits_without_being_leased(world: World) -> None:
    """A closed socket is no lost worker, but nothing can be handed over on it either."""
    _, link = await world.attach()
    box = world.fleet.member("box")
    world.attachments.closed(box, link)
    assert box.state == ONLINE
    job = await world.start_run()
    for _ in range(5):
        await world.hand_over()
    assert await attempts(world, job) == 0
    assert world.queue.reason_of_run(job.run) == "waits for a free slot: box is lost"
    _, link = await world.attach()
    await world.hand_over()
    assert assigned(link) == [job.id]


async def test_during_a_blip_a_preferring_job_does_not_fall_back(world: World) -> None:
    await world.attach(a_hello("server"))
    _, link = await world.attach(a_hello("box"), labels=("gpu",))
    world.attachments.closed(world.fleet.member("box"), link)
    job = await world.start_run(ask=Ask(labels=("gpu",), policy="prefer"))
    await world.hand_over()
    assert (await world.job(job)).state == "queued"


async def test_a_lease_that_cannot_be_made_is_tried_again(world: World) -> None:
    _, link = await world.attach()
    job = await world.start_run()
    world.fail_writes(StoreFailed())
    await world.hand_over()
    assert assigned(link) == []
    assert world.fleet.member("box").busy == 0
    await world.hand_over()
    assert assigned(link) == [job.id]


@pytest.mark.parametrize("error", [StoreFailed(), RuntimeError("never seen before")])
async def test_whatever_goes_wrong_the_job_stays_in_the_queue(world: World, error: Exception) -> None:
    await world.attach()
    job = await world.start_run()
    world.fail_writes(error)
    await world.hand_over()
    assert [queued.id for queued in world.queue.heads()] == [job.id]


async def test_a_claim_that_the_store_refuses_is_looked_at_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.attach()
    queued, cancelled = await world.start_run(age_at=1.0), await world.start_run(age_at=2.0)

    def no_lease(claims: list[Any], _: float) -> Answer[tuple[None, ...]]:
        return succeeded((None,) * len(claims))

    monkeypatch.setattr(world.store.jobs, "lease", no_lease)
    await world.store.runs.cancel(cancelled.run, 2.0)
    await world.hand_over()
    assert [job.id for job in world.queue.heads()] == [queued.id]
    assert len(world.queue) == 1
    assert world.fleet.member("box").busy == 0


async def test_a_claim_that_cannot_even_be_looked_at_keeps_the_job(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.attach()
    job = await world.start_run()

    def no_lease(claims: list[Any], _: float) -> Answer[tuple[None, ...]]:
        return succeeded((None,) * len(claims))

    async def broken(_: str) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(world.store.jobs, "lease", no_lease)
    monkeypatch.setattr(world.store.jobs, "get", broken)
    await world.hand_over()
    assert [queued.id for queued in world.queue.heads()] == [job.id]


async def test_a_job_is_handed_over_in_the_turn_in_which_its_lease_is_heard_of(world: World) -> None:
    await world.start_run()
    _, link = await world.attach()
    sent, submit = list[int](), world.store.database.submit

    def noting(operation: Any) -> Answer[Any]:
        answer = submit(operation)
        answer.follow(lambda _: asyncio.get_running_loop().call_soon(lambda: sent.append(len(link.sent))))
        return answer

    world.store.database.submit = noting  # type: ignore[method-assign]
    before = len(link.sent)
    await world.hand_over()
    await asyncio.sleep(0)
    assert sent == [before + 1]


async def test_a_session_that_closes_while_the_lease_is_made_costs_nothing(world: World) -> None:
    _, link = await world.attach()
    box = world.fleet.member("box")
    job = await world.start_run()
    go_on = world.block_writes()
    world.dispatcher._pass()
    world.attachments.closed(box, link)
    go_on.set()
    await world.dispatcher.settle()
    after = await world.job(job)
    assert (after.state, after.crashes, after.handoffs_failed) == ("queued", 0, 0)
    assert link.sent == []
    assert box.busy == 0
    assert [queued.id for queued in world.queue.heads()] == [job.id]


async def test_a_lease_nobody_knows_of_is_taken_back_however_often_that_fails(world: World) -> None:
    _, link = await world.attach()
    box = world.fleet.member("box")
    job = await world.start_run()
    go_on = world.block_writes()
    world.dispatcher.release()
    world.dispatcher._pass()
    world.attachments.closed(box, link)
    end, tries = world.store.reports.end, list[int]()

    def failing_at_first(*arguments: Any) -> Answer[Any]:
        tries.append(1)
        return failed(StoreFailed()) if len(tries) < 4 else end(*arguments)

    world.store.reports.end = failing_at_first  # type: ignore[method-assign]
    go_on.set()
    await world.dispatcher.settle()
    assert len(tries) == 4
    assert (await world.job(job)).state == "queued"
    assert box.busy == 0


async def test_a_stopping_dispatcher_does_not_insist(world: World) -> None:
    _, link = await world.attach()
    await world.start_run()
    go_on = world.block_writes()
    world.dispatcher._pass()
    world.attachments.closed(world.fleet.member("box"), link)

    world.store.reports.end = lambda *_: failed(StoreFailed())  # type: ignore[method-assign]
    world.dispatcher.hold_back()
    go_on.set()
    with fail_after(5):
        await world.dispatcher.settle()


async def test_a_cancel_while_the_job_is_handed_over_follows_its_assign(world: World) -> None:
    _, link = await world.attach()
    job = await world.start_run()
    go_on = world.block_writes()
    world.dispatcher._pass()
    go_on.set()
    world.consequences.follow(await world.store.runs.cancel(job.run, 2.0))
    await world.dispatcher.settle()
    assert [type(message) for message in link.sent] in ([], [protocol.Assign, protocol.Cancel])
    assert (await world.run_of(job)).state in ("cancelled", "cancelling")


class WaitingLink(FakeLink):
    def __init__(self) -> None:
        super().__init__()
        self.arrived = Event()

    def send(self, message: Any) -> None:
        super().send(message)
        self.arrived.set()


async def test_the_loop_is_woken_by_what_changes(world: World) -> None:
    """B070: enqueue, attach and release each wake it; it never looks by the clock."""
    world.dispatcher.start()
    try:
        job = await world.start_run()
        link = WaitingLink()
        await world.attach(link=link)
        world.dispatcher.release()
        with fail_after(5):
            await link.arrived.wait()
        assert assigned(link) == [job.id]
        world.attachments.closed(world.fleet.member("box"), link)
        link = WaitingLink()
        await world.attach(a_hello(instance="i1", held=[world.held(await world.job(job))]), link=link)
        another = await world.start_run()
        with fail_after(5):
            await link.arrived.wait()
        assert assigned(link) == [another.id]
    finally:
        await world.dispatcher.stop()
        await world.dispatcher.settle()


async def test_one_job_that_cannot_be_looked_at_holds_up_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, link = await world.attach()
    odd, plain = await world.start_run(priority=1, ask=Ask(labels=("box",))), await world.start_run()
    place = world.dispatcher._place

    def failing(job: Job, *more: Any) -> bool:
        if job.id == odd.id:
            raise ZeroDivisionError("a mistake")
        return place(job, *more)

    monkeypatch.setattr(world.dispatcher, "_place", failing)
    await world.hand_over()
    assert assigned(link) == [plain.id]
