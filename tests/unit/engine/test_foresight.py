"""What a report lets go is promised before it is recorded, and taken back when it is not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from farhand.engine import handover as handover_module
from farhand.errors import StaleLease, StoreFailed
from farhand.model import Job
from farhand.store.answers import Answer
from farhand_worker import protocol
from tests.unit.engine.records import FakeLink, a_hello
from tests.unit.engine.world import World

pytestmark = pytest.mark.anyio

RESULT = protocol.Result("completed", 3.0, value={"enc": "json", "text": "1"})


@pytest.fixture(autouse=True)
def no_waiting_between_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover_module, "RETRY_S", 0.0)


def a_call(key: str, **ask: Any) -> protocol.Call:
    wanted = {"labels": ["gpu"], "policy": "require", "runs_on": "any", **ask}
    return protocol.Call(key, "fit", "weather:fit", {"enc": "json", "text": "[[],{}]"}, wanted, 3.0)


def assigned(link: FakeLink) -> list[str]:
    return [assign.key or assign.job for assign in link.of(protocol.Assign)]


async def a_parent_and_a_worker(world: World, slots: int = 1) -> tuple[Job, FakeLink]:
    """A run on the worker ``server``, and a worker for its calls."""
    await world.attach(a_hello("server"))
    parent = await world.start_run()
    await world.hand_over()
    parent = await world.started(await world.job(parent))
    _, link = await world.attach(a_hello("box", instance="i2", parallel=slots), labels=("gpu",))
    world.wakeup.is_set = False
    return parent, link


async def test_a_call_that_has_room_is_handed_over_by_the_operation_that_records_it(world: World) -> None:
    parent, link = await a_parent_and_a_worker(world)
    before = world.store.database.operations
    await world.report(parent, a_call("a"), a_call("b"), first=2)
    assert world.store.database.operations == before + 1
    assert assigned(link) == ["a"]
    assert world.fleet.member("box").busy == 1
    assert len(world.queue) == 1


async def test_the_next_in_the_queue_has_the_slot_of_one_that_ends(world: World) -> None:
    parent, link = await a_parent_and_a_worker(world)
    await world.report(parent, a_call("a"), a_call("b"), a_call("c"), first=2)
    first = link.of(protocol.Assign)[0]
    held = world.fleet.holder(first.job)
    assert held is not None
    before = world.store.database.operations
    await world.report(held[1].job, protocol.Started(2.0, 1, "3.11"), RESULT)
    assert world.store.database.operations == before + 1
    assert assigned(link) == ["a", "b"]
    assert world.fleet.member("box").busy == 1


async def test_a_call_goes_behind_those_that_wait_like_it(world: World) -> None:
    parent, link = await a_parent_and_a_worker(world)
    await world.report(parent, a_call("a"), a_call("b"), first=2)
    world.fleet.member("box").parallel = 2
    world.wakeup.is_set = False
    await world.report(parent, a_call("c"), first=4)
    assert assigned(link) == ["a"]
    await world.hand_over()
    assert assigned(link) == ["a", "b"]


async def test_a_call_that_asks_for_what_cannot_be_read_is_refused_by_the_store(world: World) -> None:
    parent, _ = await a_parent_and_a_worker(world)
    with pytest.raises(protocol.ProtocolViolation):
        await world.report(parent, a_call("a", labels=7), first=2)
    assert world.fleet.member("box").busy == 0


@pytest.mark.parametrize("error", [StoreFailed("the disk is full"), StaleLease("not current")])
async def test_what_was_promised_ahead_is_taken_back_with_the_report(world: World, error: Exception) -> None:
    parent, link = await a_parent_and_a_worker(world)
    await world.report(parent, a_call("a"), a_call("b"), first=2)
    held = world.fleet.holder(link.of(protocol.Assign)[0].job)
    assert held is not None
    world.fail_writes(error)
    with pytest.raises(type(error)):
        await world.report(held[1].job, RESULT)
    assert world.fleet.member("box").busy == 1
    assert len(world.queue) == 1
    await world.hand_over()
    assert assigned(link) == ["a"]
    await world.report(held[1].job, RESULT)
    assert assigned(link) == ["a", "b"]


async def test_a_worker_that_leaves_meanwhile_gives_its_call_back(world: World) -> None:
    parent, link = await a_parent_and_a_worker(world)
    submit = world.store.database.submit

    def parting(operation: Any) -> Answer[Any]:
        answer = submit(operation)
        answer.follow(lambda _: setattr(world.fleet.member("box"), "link", None))
        return answer

    world.store.database.submit = parting  # type: ignore[method-assign]
    await world.report(parent, a_call("a"), first=2)
    world.store.database.submit = submit  # type: ignore[method-assign]
    await world.dispatcher.settle()
    assert assigned(link) == []
    assert len(world.queue) == 1
    assert world.fleet.member("box").busy == 0


async def test_what_ends_and_what_is_asked_for_in_one_go_share_a_slot_though_nobody_waited(
    world: World,
) -> None:
    parent, link = await a_parent_and_a_worker(world)
    await world.report(parent, a_call("a"), first=2)
    held = world.fleet.holder(link.of(protocol.Assign)[0].job)
    assert held is not None
    job = held[1].job
    ended = [
        ["started", {"at": 2.0, "pid": 1, "python": "3.11"}],
        ["result", {"state": "completed", "at": 3.0}],
    ]
    asked = [["call", msgspec.to_builtins(a_call("b"))]]
    world.fleet.hold(world.fleet.member("box"), parent, parent.lease or 0)  # both are of one worker
    await world.store.database.write(
        lambda connection: connection.execute("UPDATE jobs SET worker = 'box' WHERE id = ?", (parent.id,))
    )
    world.fleet.member("box").parallel = 2
    world.wakeup.is_set = False
    await world.reports.record_all(
        [
            protocol.Event(job.id, job.lease or 0, "engine", 1, ended),
            protocol.Event(parent.id, parent.lease or 0, "engine", 3, asked),
        ],
        "box",
    )
    assert assigned(link) == ["a", "b"]
    assert world.fleet.member("box").busy == 2
