"""The websocket shell: who is let in, and how a session ends."""

from __future__ import annotations

from typing import Any

import pytest
from anyio import fail_after

from farhand.engine.member import OFFLINE, ONLINE
from farhand_worker import protocol
from tests.unit.engine.records import a_hello
from tests.unit.engine.world import World
from tests.unit.gateway.gateways import (
    COMPLETED,
    ORDERLY,
    STARTED,
    VIOLATION,
    Gateway,
    an_event,
)

pytestmark = pytest.mark.anyio


# ---------------------------------------------------------------- the order of a session


async def test_a_hello_is_welcomed_and_jobs_follow(gateway: Gateway, world: World) -> None:
    job = await world.start_run()
    websocket = gateway.dial()
    websocket.say(a_hello())
    welcome = await websocket.hear()
    assert isinstance(welcome, protocol.Welcome)
    assert welcome.protocol == 1
    await gateway.answered(websocket)
    await world.hand_over()
    assert (await websocket.hear(protocol.Assign)).job == job.id


async def test_nothing_is_sent_before_the_welcome(gateway: Gateway, world: World) -> None:
    """A cancel that is asked for while the worker is being let in waits for its turn."""
    websocket, job = await gateway.with_job()
    websocket.say(an_event(job, 1, STARTED))
    await websocket.hear(protocol.Ack)
    recorded = world.store.reports.recorded

    async def just_then(job_id: str, lease: int) -> dict[str, int]:
        world.consequences.follow(await world.store.runs.cancel(job.run, 3.0))
        return await recorded(job_id, lease)

    world.store.reports.recorded = just_then  # type: ignore[method-assign]
    again = gateway.dial()
    again.say(a_hello(held=[world.held(job)]))
    assert isinstance(await again.hear(), protocol.Welcome)
    assert await again.hear() == protocol.Cancel(job.id, job.lease or 0)


async def test_a_refusal_arrives_before_the_close(gateway: Gateway, world: World) -> None:
    websocket = gateway.dial(labels=("gpu",))
    websocket.say(a_hello(labels=[]))
    refusal = await websocket.hear()
    assert (refusal.code, refusal.final) == ("labels", True)
    assert await websocket.hear() == (ORDERLY, "labels")
    await gateway.ended()
    assert world.fleet.get("box") is None


@pytest.mark.parametrize(
    "frames",
    [
        [protocol.Heartbeat(1)],
        ["not json"],
        [a_hello(), a_hello()],
        [a_hello(), protocol.Ack(n=1)],
        [a_hello(), '{"type": "heartbeat", "n": "1"}'],
        [a_hello(held=[{"job": 1}])],
        [a_hello(protocol=[])],
        [a_hello(), protocol.Event("j1", 1, "engine", 1, [["unheard of", {}]])],
        [a_hello(), protocol.Event("j1", 1, "engine", 1, [[]])],
    ],
    ids=lambda frames: " ".join(f if isinstance(f, str) else f.type for f in frames),
)
async def test_what_breaks_the_protocol_closes_the_session_saying_so(
    gateway: Gateway, frames: list[Any]
) -> None:
    websocket = gateway.dial()
    websocket.say(*frames)
    code, reason = await websocket.hear(tuple)
    assert code == VIOLATION
    assert reason.startswith("protocol_violation: ")
    await gateway.ended()


async def test_frames_after_the_close_are_dropped_unread(gateway: Gateway, world: World) -> None:
    websocket, job = await gateway.with_job()
    box = world.fleet.member("box")
    assert box.link is not None
    box.link.close("for a reason")
    heard_at = box.heard_at
    websocket.say(protocol.Heartbeat(5), an_event(job, 1, STARTED), protocol.Bye("drained"))
    assert await websocket.hear() == (ORDERLY, "for a reason")
    await gateway.ended()
    assert box.heard_at == heard_at
    assert await world.store.reports.recorded(job.id, job.lease or 0) == {}
    assert box.state == ONLINE
    assert websocket.outgoing.empty()


async def test_a_reason_longer_than_a_close_frame_holds_is_cut(gateway: Gateway, world: World) -> None:
    websocket = await gateway.attached()
    link = world.fleet.member("box").link
    assert link is not None
    link.close("\ud800" + "é" * 500)
    _, reason = await websocket.hear(tuple)
    assert reason.startswith("?ééé")
    assert len(reason.encode()) <= 123


async def test_a_dropped_socket_is_no_lost_worker(gateway: Gateway, world: World) -> None:
    websocket, job = await gateway.with_job()
    websocket.drop()
    await gateway.ended()
    box = world.fleet.member("box")
    assert (box.state, box.link, box.busy) == (ONLINE, None, 1)
    assert box.closed_at is not None
    assert await world.job(job) == job


async def test_a_newer_session_closes_the_earlier_one(gateway: Gateway, world: World) -> None:
    earlier, later = await gateway.attached(), await gateway.attached()
    assert (await earlier.hear(tuple))[0] == ORDERLY
    with fail_after(5):
        await gateway.serving[0]
    assert world.fleet.member("box").closed_at is None
    await gateway.answered(later)


async def test_a_goodbye_is_acted_on_after_the_reports_before_it(gateway: Gateway, world: World) -> None:
    websocket, job = await gateway.with_job()
    websocket.say(an_event(job, 1, STARTED, COMPLETED), protocol.Bye("drained"))
    assert await websocket.hear(tuple) == (ORDERLY, "drained")
    await gateway.ended()
    assert (await world.run_of(job)).state == "completed"
    assert world.fleet.member("box").state == OFFLINE


async def test_all_that_follows_from_a_goodbye_is_done_though_the_session_closes_meanwhile(
    gateway: Gateway, world: World
) -> None:
    """What the worker held is in the queue, not only in the store, and that it is offline is an event."""
    websocket, job = await gateway.with_job()
    websocket.say(protocol.Bye("stopped"))
    assert await websocket.hear(tuple) == (ORDERLY, "stopped")
    await gateway.ended()
    assert world.fleet.member("box").busy == 0
    assert world.queue.knows(job.id)
    assert await world.event_kinds() == ["worker.attached", "worker.offline"]


async def test_the_welcome_goes_in_a_frame_of_its_own_whatever_follows_at_once(
    gateway: Gateway, world: World
) -> None:
    """It is read before anything else, also by a worker that reads frames of several messages."""
    (await gateway.attached()).say(protocol.Bye("stopped"))
    await gateway.ended()
    await world.operations.drain("box", "anna")
    websocket = gateway.dial()
    websocket.say(a_hello(instance="i2", several=True))
    assert isinstance(await websocket.hear(), protocol.Welcome)
    assert await websocket.hear() == protocol.Set(draining=True)
