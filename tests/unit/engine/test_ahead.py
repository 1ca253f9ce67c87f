"""Short calls are handed over to wait on a slot behind their like, and are asked back when that is no use."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from farhand.engine import ahead as ahead_module
from farhand.engine.ahead import SHORT_S, Recalls, Seen
from farhand.engine.why import Explanations
from farhand.engine.workers import Workers
from farhand.model import Job, JobSettings
from farhand_worker import protocol
from tests.unit.engine.records import FakeLink, a_hello
from tests.unit.engine.world import World

pytestmark = pytest.mark.anyio

VALUE = {"enc": "json", "text": "1"}


def a_call(key: str, entry: str = "weather:fit", **ask: Any) -> protocol.Call:
    wanted = {"labels": ["gpu"], "policy": "require", "runs_on": "any", **ask}
    return protocol.Call(key, entry, entry, {"enc": "json", "text": "[[],{}]"}, wanted, 3.0)


def ran(seconds: float = 0.001) -> list[Any]:
    return [protocol.Started(3.0, 1, "3.11"), protocol.Result("completed", 3.0 + seconds, value=VALUE)]


RETURNED = protocol.Exit(3.0, "returned", "the one before it on its slot takes long")


def assigned(link: FakeLink) -> list[tuple[str, int | None]]:
    return [(assign.key, assign.behind) for assign in link.of(protocol.Assign)]


async def mapped(
    world: World, *calls: protocol.Call, slots: int = 1, ahead: int = 16, parallel: int = 1
) -> tuple[Job, FakeLink]:
    """A run on the worker ``server`` that has asked for calls, and a worker which takes them."""
    await world.attach(a_hello("server"))
    parent = await world.start_run()
    await world.hand_over()
    parent = await world.started(await world.job(parent))
    hello = a_hello("box", instance="i2", parallel=slots, several=True, ahead=ahead)
    _, link = await world.attach(hello, labels=("gpu",))
    world.wakeup.is_set = False
    await world.report(parent, *calls, first=2)
    return parent, link


async def held(world: World, link: FakeLink, number: int) -> Job:
    """The job of an assign."""
    found = world.fleet.holder(link.of(protocol.Assign)[number].job)
    assert found is not None
    return found[1].job


def as_frame(job: Job) -> protocol.Event:
    return protocol.Event(job.id, job.lease or 0, "engine", 1, ran())


def keys(count: int) -> list[protocol.Call]:
    return [a_call(f"k{number:02}") for number in range(count)]


async def test_once_a_call_was_short_its_like_are_handed_over_together(world: World) -> None:
    _, link = await mapped(world, *keys(12))
    assert len(assigned(link)) == 1
    before = world.store.database.operations
    await world.report(await held(world, link, 0), *ran())
    assert world.store.database.operations == before + 1
    leader = link.of(protocol.Assign)[1]
    behind = assigned(link)[2:]
    assert len(behind) == 5  # its share: half of what waits for this one slot
    assert {lease for _, lease in behind} == {leader.lease}
    assert len(set(assigned(link))) == 7
    assert world.fleet.member("box").busy == 1


async def test_a_slot_is_sent_more_before_it_runs_dry(world: World) -> None:
    _, link = await mapped(world, *keys(100))
    await world.report(await held(world, link, 0), *ran())
    leader = link.of(protocol.Assign)[1].lease
    sent = len(assigned(link))
    for number in range(1, sent):
        await world.report(await held(world, link, number), *ran())
    later = assigned(link)[sent:]
    assert len(later) > 8
    assert {behind for _, behind in later} == {leader}
    assert world.fleet.member("box").busy == 1


@pytest.mark.parametrize(("seconds", "together"), [(0.001, True), (SHORT_S * 2, False)])
async def test_a_call_takes_as_long_as_its_code_even_if_its_end_is_told_later(
    world: World, seconds: float, together: bool
) -> None:
    """A report may wait for the upload of a large result, which is no part of the call."""
    _, link = await mapped(world, *keys(12))
    began, ended = ran(seconds)
    first = await held(world, link, 0)
    await world.report(first, began)
    await world.report(first, ended, first=2)
    assert any(behind is not None for _, behind in assigned(link)) is together


@pytest.mark.parametrize(
    "events", [ran(SHORT_S * 2), [protocol.Exit(3.0, "crashed", "signal 9")]], ids=["long", "died"]
)
async def test_nothing_waits_behind_calls_that_take_long(world: World, events: list[Any]) -> None:
    _, link = await mapped(world, *keys(12))
    await world.report(await held(world, link, 0), *events)
    assert all(behind is None for _, behind in assigned(link))


async def test_nothing_waits_on_a_worker_that_does_not_say_it_takes_that(world: World) -> None:
    _, link = await mapped(world, *keys(12), ahead=0)
    await world.report(await held(world, link, 0), *ran())
    assert len(assigned(link)) == 2


@pytest.mark.parametrize("other", [a_call("k00b", "weather:other"), a_call("k00b", cpus=1)])
async def test_only_what_is_alike_shares_a_slot(world: World, other: protocol.Call) -> None:
    _, link = await mapped(world, a_call("k00"), other, *keys(12)[1:])
    for number in range(3):
        if number < len(assigned(link)):
            await world.report(await held(world, link, number), *ran())
    shared = {key for key, behind in assigned(link) if behind is not None}
    assert shared
    assert "k00b" not in shared


@pytest.mark.parametrize(("seconds", "ahead"), [(0.011, 0), (0.01, 1)])
async def test_the_last_ones_are_spread_over_all_slots_unless_they_take_no_longer_than_their_way(
    world: World, seconds: float, ahead: int
) -> None:
    _, link = await mapped(world, *keys(5), slots=2)
    await world.report(await held(world, link, 0), *ran(seconds))
    assert sum(behind is not None for _, behind in assigned(link)) == ahead


async def test_what_is_given_back_is_queued_at_no_cost_and_less_is_sent_ahead(world: World) -> None:
    _, link = await mapped(world, *keys(100))
    await world.report(await held(world, link, 0), *ran())
    first = len(assigned(link)) - 2
    waiting = await held(world, link, 2)
    await world.report(waiting, RETURNED, source="agent")
    assert world.queue.knows(waiting.id)
    assert (await world.job(waiting)).attempt == 0
    kind = (waiting.bundle, waiting.entry)
    assert world.dispatcher._ahead._seen[kind].room <= first // 2 + 1


async def started_at_once(world: World, count: int, **fields: Any) -> FakeLink:
    """A worker with one slot, on which the first of many runs of a flow was short."""
    _, link = await world.attach(a_hello("box", parallel=1, several=True, ahead=16))
    for _ in range(count):
        await world.start_run(**fields)
    await world.hand_over()
    assert len(assigned(link)) == 1
    await world.report(await held(world, link, 0), *ran())
    return link


async def test_once_a_run_was_short_its_like_are_handed_over_together(world: World) -> None:
    link = await started_at_once(world, 12)
    leader = link.of(protocol.Assign)[1]
    behind = assigned(link)[2:]
    assert len(behind) == 5
    assert {lease for _, lease in behind} == {leader.lease}
    assert world.fleet.member("box").busy == 1
    waiting = await held(world, link, 2)
    assert (await world.run_of(waiting)).message == "handed to box, behind another run there"
    await world.report(waiting, RETURNED, source="agent")
    assert world.queue.knows(waiting.id)


@pytest.mark.parametrize("settings", [JobSettings(max_concurrent=5), JobSettings(isolated=True)])
async def test_runs_that_are_counted_or_want_engines_of_their_own_are_not_sent_ahead(
    world: World, settings: JobSettings
) -> None:
    link = await started_at_once(world, 12, settings=settings)
    assert [behind for _, behind in assigned(link)] == [None, None]


def test_what_is_sent_ahead_follows_what_was_seen() -> None:
    assert Seen().room == 0
    assert Seen().took(0.001).room == 8
    assert Seen().took(0.02).room == 5
    assert Seen().took(0.021).room == 0
    assert Seen().took(1.0).took(0.001).room == 0
    assert Seen().took(0.001).given_back().given_back().room == 2
    seen = Seen()
    for _ in range(100):
        seen = seen.took(0.001)
    assert seen.room == protocol.AHEAD_MAX


async def test_a_free_slot_elsewhere_asks_the_later_half_back_once(world: World) -> None:
    _, link = await mapped(world, *keys(12))
    await world.report(await held(world, link, 0), *ran())
    while len(world.queue):
        world.queue.take(world.queue.heads()[0])
    waiting = [assign.key for assign in link.of(protocol.Assign)[2:]]
    _, other = await world.attach(a_hello("other", instance="i3", several=True), labels=("gpu",))
    recalls = Recalls(world.fleet, lambda: False)
    recalls._recall()
    recalls._recall()
    asked = [message.job for message in link.of(protocol.Recall)]
    by_key = {assign.key: assign.job for assign in link.of(protocol.Assign)}
    assert asked == [by_key[key] for key in waiting[len(waiting) // 2 :]]
    assert recalls._timer is not None
    recalls._timer.cancel()
    del other


async def test_a_pass_that_leaves_slots_free_has_them_looked_at_in_a_moment(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead_module, "RECALL_AFTER_S", 0.0)
    _, link = await mapped(world, *keys(12))
    await world.report(await held(world, link, 0), *ran())
    while len(world.queue):
        world.queue.take(world.queue.heads()[0])
    world.fleet.member("box").parallel = 2
    await world.hand_over()
    assert world.dispatcher._recalls._timer is not None
    world.dispatcher._recalls._timer.cancel()


async def test_people_are_told_what_waits_behind_another(world: World) -> None:
    parent, link = await mapped(world, *keys(12))
    await world.report(await held(world, link, 0), *ran())

    class Runs:
        async def get(self, run: str) -> Any:
            return await world.store.runs.get(run)

        async def attempts(self, run: str) -> Any:
            return await world.store.runs.attempts(run)

    why = await Explanations(Runs(), world.queue, world.fleet).why(parent.run)  # type: ignore[arg-type]
    told = {call.code: (call.count, call.message) for call in why.calls}
    assert told["behind"] == (
        5,
        "are handed to box and wait there on a slot behind another call",
    )
    seen = await Workers(world.store, world.fleet).get("box")
    assert seen.slots_taken == 1
    assert [each.behind for each in seen.holds] == [False, *[True] * 5]
    assert seen.message == "is busy: 1 of 1 slots taken"


async def test_reports_that_come_together_are_one_transaction_and_so_is_what_follows(world: World) -> None:
    _, link = await mapped(world, *keys(100))
    await world.report(await held(world, link, 0), *ran())
    frames = [
        protocol.Event(assign.job, assign.lease, "engine", 1, ran())  # type: ignore[arg-type]
        for assign in link.of(protocol.Assign)[1:5]
    ]
    before = world.store.database.operations
    assert await world.reports.record_all(frames, "box") == (2, 2, 2, 2)
    assert world.store.database.operations == before + 1
    assert len(world.fleet.member("box").left_in(frames[0].lease)) > 4


async def test_what_is_on_its_way_to_a_slot_counts_as_there(world: World) -> None:
    _, link = await mapped(world, *keys(200))
    await world.report(await held(world, link, 0), *ran())
    leader = link.of(protocol.Assign)[1].lease
    first = [await held(world, link, number) for number in range(1, len(assigned(link)))]
    member = world.fleet.member("box")
    await asyncio.gather(*(world.report(job, *ran()) for job in first[:-1]))  # none of them is recorded yet
    assert 1 < len(member.left_in(leader)) <= protocol.AHEAD_MAX + 1
    assert not member.joining


async def test_a_slot_that_others_are_on_their_way_to_is_not_free(world: World) -> None:
    _, link = await mapped(world, *keys(200))
    await world.report(await held(world, link, 0), *ran())
    here = [await held(world, link, number) for number in range(1, len(assigned(link)))]
    await asyncio.gather(
        world.reports.record_all([as_frame(job) for job in here[:-1]], "box"),
        world.reports.record_all([as_frame(here[-1])], "box"),  # the last one there, as far as was known
    )
    assert world.fleet.member("box").busy == 1
    assert len(world.queue) + len(assigned(link)) == 200  # the store has refused none


async def test_who_watches_a_run_is_told_once_of_calls_that_are_handed_over_together(
    world: World,
) -> None:
    parent, link = await mapped(world, *keys(40))
    told: list[Any] = []
    world.bus.observe(told.append)
    await world.report(await held(world, link, 0), *ran())
    assert len(assigned(link)) > 5
    assert [notice.kind for notice in told] == ["logs", "logs"]  # the end, and the hand-overs
    assert {notice.run for notice in told} == {parent.run}
