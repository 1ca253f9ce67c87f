"""Orders to workers: obeyed when they are there, kept until they are, and told of once."""

from __future__ import annotations

import pytest

from farhand.engine.member import OFFLINE, ONLINE
from farhand.engine.workers import Workers
from farhand.errors import Conflict, NotFound, Usage
from farhand.lifecycle import Ending
from farhand_worker import protocol
from tests.unit.engine.records import FakeLink, a_hello
from tests.unit.engine.world import World

pytestmark = pytest.mark.anyio


def orders(link: object) -> list[tuple[int | None, bool | None]]:
    return [(order.parallel, order.draining) for order in link.of(protocol.Set)]  # type: ignore[attr-defined]


class Telling(FakeLink):
    """Remembers which events had been told when it was ordered something."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.told: list[list[str]] = []
        self._events = world.worker_events

    def send(self, message: object) -> None:
        if isinstance(message, protocol.Set):
            self.told.append([f"worker.{kind}" for kind in self._events.told])
        super().send(message)


async def test_a_worker_that_drains_is_handed_nothing_until_it_is_resumed(world: World) -> None:
    _, link = await world.attach()
    assert await world.operations.drain("box", "anna")
    assert not await world.operations.drain("box", "bert")
    job = await world.start_run()
    await world.hand_over()
    assert (await world.job(job)).state == "queued"
    assert await world.operations.resume("box", "anna")
    assert not await world.operations.resume("box", "anna")
    await world.hand_over()
    assert (await world.job(job)).state == "leased"
    assert orders(link) == [(None, True), (None, False)]
    assert await world.event_kinds() == ["worker.attached", "worker.draining", "worker.resumed"]


async def test_that_a_worker_drains_is_told_before_it_is_asked_to(world: World) -> None:
    """One that holds nothing answers at once that it is drained."""
    link = Telling(world)
    await world.attach(link=link)
    await world.operations.drain("box", "anna")
    assert link.told == [["worker.attached", "worker.draining"]]


async def test_a_drain_that_a_person_ordered_outlives_the_workers_program(world: World) -> None:
    """B036: also one that was ordered while the worker was away."""
    _, link = await world.attach()
    await world.attachments.leave(world.fleet.member("box"), link, "stopped")
    await world.operations.drain("box", "anna")
    _, again = await world.attach(a_hello(instance="i2"))
    assert world.fleet.member("box").draining
    assert orders(again) == [(None, True)]
    await world.operations.resume("box", "anna")
    assert not world.fleet.member("box").draining


async def test_a_drain_that_a_signal_began_ends_with_the_program_and_is_not_undone(world: World) -> None:
    await world.attach(a_hello(draining=True))
    with pytest.raises(Conflict, match="start it again there"):
        await world.operations.resume("box", "anna")
    await world.attach(a_hello(instance="i2", swept="i1"))
    assert not world.fleet.member("box").draining


async def test_slots_that_were_set_stay_with_the_instance(world: World) -> None:
    _, link = await world.attach()
    await world.operations.set_slots("box", 5)
    assert (world.fleet.member("box").parallel, orders(link)) == (5, [(5, None)])
    _, again = await world.attach(a_hello())
    assert (world.fleet.member("box").parallel, orders(again)) == (5, [(5, None)])
    await world.attach(a_hello(instance="i2", swept="i1"))
    assert world.fleet.member("box").parallel == 2
    with pytest.raises(Usage, match="between 0 and"):
        await world.operations.set_slots("box", -1)


async def test_a_worker_that_is_away_has_no_slots_to_set(world: World) -> None:
    _, link = await world.attach()
    world.attachments.closed(world.fleet.member("box"), link)
    with pytest.raises(Conflict, match="start it with --parallel 5"):
        await world.operations.set_slots("box", 5)


async def test_a_worker_is_forgotten_once_it_is_gone_and_holds_nothing(world: World) -> None:
    """B012: it is not listed any more, and registers again should it come back."""
    _, link, job = await world.worker_with_job()
    with pytest.raises(Conflict, match="is attached; stop it there"):
        await world.operations.forget("box")
    world.attachments.closed(world.fleet.member("box"), link)
    with pytest.raises(Conflict, match="still holds 1 job"):
        await world.operations.forget("box")
    assert await world.operations.forget("box", settle=True) == 1
    assert (await world.job(job)).state == "queued"
    assert await world.store.workers.list() == []
    assert world.fleet.get("box") is None
    assert [attempt.worker for attempt in await world.store.runs.attempts(job.run)] == ["box"], "B105"
    answer, _ = await world.attach(a_hello(held=[world.held(job)]))
    assert [resume.fenced for resume in answer.resume] == [True]  # type: ignore[union-attr]
    assert world.fleet.member("box").state == ONLINE


GONE = Ending("lost", "worker_lost", "gone")


async def test_processors_that_a_server_does_not_have_any_more_are_not_listed(world: World) -> None:
    """What ran on them says so for ever; an order to drain outlives them."""
    assert await world.operations.dismiss_local()
    _, link = await world.attach(a_hello("server"))
    await world.start_run()
    await world.hand_over()
    world.attachments.closed(world.fleet.member("server"), link)
    assert not await world.operations.dismiss_local()
    member = world.fleet.member("server")
    await world.rescuer.take_back(member, list(member.holdings.values()), GONE)
    assert await world.operations.dismiss_local()
    assert (await world.store.workers.list(), world.fleet.get("server")) == ([], None)
    workers = Workers(world.store, world.fleet)
    with pytest.raises(NotFound, match=r"no processors of its own \(--parallel 0\)"):
        await workers.get("server")
    assert [past.attempt.worker for past in await workers.past("server", 0.0)] == ["server"]
    await world.attach(a_hello("server"))
    await world.operations.drain("server", "anna")
    assert await world.operations.dismiss_local()
    assert (await workers.get("server")).draining


async def test_who_is_not_there_can_be_ordered_nothing(world: World) -> None:
    for order in (
        world.operations.drain("nope", "anna"),
        world.operations.resume("nope", "anna"),
        world.operations.set_slots("nope", 1),
        world.operations.forget("nope"),
    ):
        with pytest.raises(NotFound, match="there is no worker 'nope'"):
            await order


@pytest.mark.fault("3.21")
async def test_a_worker_whose_token_is_revoked_is_offline_at_once_and_keeps_its_leases(world: World) -> None:
    """Its engines may run until its warden ends them, so its job waits as long as that takes."""
    box, link, job = await world.worker_with_job()
    await world.operations.expel({"another"})
    assert box.state == ONLINE
    await world.operations.expel({"jti"})
    assert (box.state, link.closed) == (OFFLINE, "its token has been revoked")
    assert (await world.job(job)).state == "leased"
    assert box.heard_at is not None
    box.heard_at -= world.fleet.times.lease_s + world.fleet.times.margin_s
    await world.look()
    assert (await world.job(job)).state == "queued"
    assert await world.event_kinds() == ["worker.attached", "worker.offline"]


async def test_coming_back_before_it_was_missed_is_no_event_and_coming_back_after_is(world: World) -> None:
    await world.attach()
    await world.attach()
    await world.attach(a_hello(instance="i2", swept="i1"))
    await world.rescuer.declare(world.fleet.member("box"), "lost", "not heard of")
    await world.attach(a_hello(instance="i2"))
    assert await world.event_kinds() == [
        "worker.attached",
        "worker.attached",
        "worker.lost",
        "worker.attached",
    ]


async def test_a_refusal_is_one_event_however_often_it_is_tried(world: World) -> None:
    refusal = protocol.Refused("labels", "its labels are not those of its token", final=True)
    for _ in range(3):
        await world.attachments.refused(a_hello(), "box", refusal, "10.0.0.1")
    assert await world.event_kinds() == ["worker.refused"]
    await world.attach()
    await world.attachments.refused(a_hello(), "box", refusal, "10.0.0.1")
    assert (await world.event_kinds()).count("worker.refused") == 2
