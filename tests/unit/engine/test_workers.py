"""Workers as people look at them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farhand.engine.member import AWAITED, LOST, OFFLINE, ONLINE
from farhand.engine.workers import Workers, WorkerStatus, sentence
from farhand.errors import NotFound
from farhand.model import Worker
from farhand_worker import protocol
from tests.unit.engine.records import a_hello
from tests.unit.engine.world import World

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("state", "shown"), [(ONLINE, "online"), (LOST, "lost"), (AWAITED, "lost"), (OFFLINE, "offline")]
)
async def test_a_worker_is_shown_as_this_server_knows_it(world: World, state: str, shown: str) -> None:
    await world.attach()
    world.fleet.member("box").state = state
    assert (await Workers(world.store, world.fleet).get("box")).worker.state == shown


async def test_workers_are_listed_by_name_those_of_earlier_days_too(world: World) -> None:
    await world.attach(a_hello("zoe"))
    await world.attach(a_hello("ann"))
    earlier = Workers(world.store, World(world.store).fleet)
    assert [status.worker.name for status in await earlier.list()] == ["ann", "zoe"]


async def test_a_worker_was_last_seen_when_it_was_last_heard(world: World) -> None:
    await world.attach()
    workers = Workers(world.store, world.fleet)
    before = (await workers.get("box")).worker.last_seen_at
    box = world.fleet.member("box")
    assert box.heard_at is not None
    box.heard_at -= 100.0
    after = (await workers.get("box")).worker.last_seen_at
    assert before is not None
    assert after == pytest.approx(before - 100.0, abs=5.0)


async def test_an_unknown_worker_is_named(world: World) -> None:
    with pytest.raises(NotFound, match="there is no worker 'nope'"):
        await Workers(world.store, world.fleet).get("nope")


async def test_a_worker_that_drains_is_drained_once_nothing_is_left_on_it(world: World) -> None:
    _, _, job = await world.worker_with_job()
    workers = Workers(world.store, world.fleet)
    assert (await workers.get("box")).shown == "online"
    await world.operations.drain("box", "anna")
    assert ((await workers.get("box")).shown, (await workers.get("box")).drained) == ("draining", False)
    job = await world.started(job)
    await world.report(job, protocol.Result("completed", 3.0), first=2)
    await world.attachments.drained(world.fleet.member("box"))
    assert ((await workers.get("box")).shown, (await workers.get("box")).drained) == ("drained", True)
    await world.operations.resume("box", "anna")
    assert (await workers.get("box")).shown == "online"
    kinds = await world.event_kinds()
    assert kinds == ["worker.attached", "worker.draining", "worker.drained", "worker.resumed"]


@pytest.mark.parametrize(
    ("cpus", "state", "warns"), [(4, "online", True), (5, "online", False), (4, "offline", False)]
)
def test_more_slots_than_cores_are_worth_a_warning(cpus: int, state: str, warns: bool) -> None:
    worker = replace(A, parallel=5, state=state, reported={"inventory": {"cpus": cpus}})
    words = "5 slots are above the 4 cores of that machine; the jobs will share them"
    assert WorkerStatus(worker, "").warning == (words if warns else "")


def test_where_the_cores_are_not_known_there_is_nothing_to_warn_of() -> None:
    for reported in ({}, {"inventory": {"gpus": 1}}):
        assert WorkerStatus(replace(A, parallel=400, reported=reported), "").warning == ""


async def test_a_worker_whose_token_is_no_longer_good_is_said_to_need_a_new_one(world: World) -> None:
    workers = Workers(world.store, world.fleet)
    _, link = await world.attach(a_hello())
    await world.operations.expel({world.fleet.member("box").jti})
    status = await workers.get("box")
    assert status.needs_token
    assert status.message == "is offline; its token has been revoked: it comes back with a new one only"
    _, link = await world.attach(a_hello(instance="another"))
    box = world.fleet.member("box")
    box.token_until = 1.0
    assert not (await workers.get("box")).needs_token, "an expired token matters to new instances only"
    await world.attachments.leave(box, link, "stopped")
    status = await workers.get("box")
    assert status.message == "is offline; its token has expired: started again, it needs a new one"
    box.ends_at = 5e9
    assert not (await workers.get("box")).needs_token, "a machine for a while is not expected back"


A = Worker("box", "online", (), 2, "i1", "machine", "3.11", "0.1.0")


@pytest.mark.parametrize(
    ("fields", "draining", "held", "left_s", "words"),
    [
        ({}, False, 0, None, "is there: 2 of 2 slots free"),
        ({}, False, 2, None, "is busy: 2 of 2 slots taken"),
        ({"parallel": 0}, False, 0, None, "is there, and has no slots"),
        ({"drained_by": "anna"}, True, 1, None, "takes nothing new, as anna ordered; 1 job to finish"),
        ({}, True, 0, None, "takes nothing new, as it was told to end; it holds nothing any more"),
        (
            {"state": "lost"},
            False,
            2,
            11.2,
            "is not heard of; 2 jobs queued again in 11 s unless it comes back",
        ),
        ({"state": "lost"}, False, 0, 11.2, "is not heard of; nothing waits for it"),
        ({"state": "offline"}, False, 0, None, "is offline"),
        (
            {"state": "offline", "drained_by": "anna"},
            True,
            0,
            None,
            "is offline; it still drains when it is back, as anna ordered",
        ),
    ],
)
def test_a_sentence_says_what_a_workers_state_means_for_work(
    fields: dict[str, object], draining: bool, held: int, left_s: float | None, words: str
) -> None:
    assert sentence(replace(A, **fields), draining, held, left_s) == words  # type: ignore[arg-type]
