"""The websocket shell: what is answered at once, what waits for the store, and what it is asked for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from farhand.engine.member import AWAITED, LOST, ONLINE
from farhand.errors import StoreFailed
from farhand.gateway import socket as socket_module
from farhand.gateway.socket import Socket
from farhand.model import JobSettings
from farhand.store import Store
from farhand_worker import protocol
from tests.unit.engine.records import Clock, a_hello
from tests.unit.engine.world import TIMES, World
from tests.unit.gateway import gateways
from tests.unit.gateway.gateways import (
    COMPLETED,
    STARTED,
    TRY_AGAIN,
    Gateway,
    a_gateway,
    a_line,
    an_event,
)

pytestmark = pytest.mark.anyio


# ---------------------------------------------------------------- heartbeats and the store


async def test_heartbeats_are_answered_while_the_store_is_stuck(gateway: Gateway, world: World) -> None:
    """Heartbeats never wait for the store; acknowledgements of reports always do."""
    websocket, job = await gateway.with_job()
    go_on = world.block_writes()
    websocket.say(an_event(job, 1, STARTED))
    for number in range(1, 6):
        websocket.say(protocol.Heartbeat(number))
        assert await websocket.hear() == protocol.Ack(n=number)
    go_on.set()
    ack = protocol.Ack(job=job.id, lease=job.lease, source="engine", seq=1)
    assert await websocket.hear() == ack


async def test_an_answered_heartbeat_renews_and_brings_a_lost_worker_back(
    gateway: Gateway, world: World
) -> None:
    websocket = await gateway.attached()
    await gateway.answered(websocket)
    box = world.fleet.member("box")
    box.state, box.heard_at, box.closed_at = LOST, 0.0, 1.0
    await gateway.answered(websocket)
    assert box.state == ONLINE
    assert box.heard_at
    assert box.closed_at is None


async def test_batches_are_recorded_in_the_order_they_came_and_share_commits(
    gateway: Gateway, world: World
) -> None:
    websocket, job = await gateway.with_job()
    go_on = world.block_writes()
    websocket.say(an_event(job, 1, STARTED))
    websocket.say(*(an_event(job, 2 + n, a_line(str(n))) for n in range(50)))
    await gateway.answered(websocket)
    commits = world.store.database.commits
    go_on.set()
    acks = [await websocket.hear(protocol.Ack) for _ in range(51)]
    assert [ack.seq for ack in acks] == list(range(1, 52))
    assert [line.text for line in (await world.store.logs.page(job.run)).items] == [str(n) for n in range(50)]
    assert world.store.database.commits - commits < 51


async def test_a_stale_lease_is_fenced_and_the_session_goes_on(gateway: Gateway, world: World) -> None:
    """B006, B014: nothing that an old attempt says is believed."""
    websocket, job = await gateway.with_job()
    websocket.say(protocol.Event(job.id, (job.lease or 0) - 1, "engine", 1, [COMPLETED]))
    fenced = await websocket.hear(protocol.Fenced)
    assert (fenced.job, fenced.lease) == (job.id, (job.lease or 0) - 1)
    await gateway.answered(websocket)
    assert (await world.run_of(job)).state == "starting"


async def test_a_stale_report_among_others_holds_none_of_them_up(gateway: Gateway, world: World) -> None:
    """Lines that were recorded after it alone were late: the next frame had ended their attempt."""
    websocket, job = await gateway.with_job()
    stale = protocol.Event(job.id, (job.lease or 0) - 1, "engine", 1, [COMPLETED])
    line = protocol.Event(job.id, job.lease or 0, "agent", 1, [a_line("a child's last words")])
    go_on = world.block_writes()
    websocket.say(protocol.encode_several([protocol.encode(each) for each in (stale, line)]))
    websocket.say(an_event(job, 1, STARTED, COMPLETED))
    await gateway.answered(websocket)
    go_on.set()
    assert (await websocket.hear(protocol.Fenced)).lease == stale.lease
    acks = [await websocket.hear(protocol.Ack) for _ in range(2)]
    assert [(ack.source, ack.seq) for ack in acks] == [("agent", 1), ("engine", 2)]
    assert [line.text for line in (await world.store.logs.page(job.run)).items] == ["a child's last words"]


async def test_what_follows_on_reports_that_are_refused_together_is_no_breach_of_the_protocol(
    gateway: Gateway, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was with the writer already when they were given to it one by one."""
    monkeypatch.setattr(world.reports, "is_held", lambda *_: True)  # as it was a moment ago
    websocket, job = await gateway.with_job()
    stale = protocol.Event(job.id, (job.lease or 0) - 1, "engine", 1, [COMPLETED])
    go_on = world.block_writes()
    websocket.say(
        protocol.encode_several([protocol.encode(each) for each in (stale, an_event(job, 1, STARTED))])
    )
    websocket.say(an_event(job, 2, a_line("a")), an_event(job, 3, a_line("b")))
    await gateway.answered(websocket)
    go_on.set()
    assert (await websocket.hear(protocol.Fenced)).lease == stale.lease
    assert [(await websocket.hear(protocol.Ack)).seq for _ in range(3)] == [1, 2, 3]
    assert [line.text for line in (await world.store.logs.page(job.run)).items] == ["a", "b"]
    websocket.say(an_event(job, 5, a_line("d")))
    code, reason = await websocket.hear(tuple)
    assert (code, "events 4 to 4" in reason) == (1002, True), "what is missing is a breach all the same"


@pytest.mark.fault("1.8")
async def test_what_was_recorded_is_acknowledged_whatever_the_lease_is_now(
    gateway: Gateway, world: World
) -> None:
    websocket, job = await gateway.with_job()
    for _ in range(2):
        websocket.say(an_event(job, 1, STARTED, COMPLETED))
        assert (await websocket.hear(protocol.Ack)).seq == 2
    assert (await world.run_of(job)).state == "completed"


@pytest.mark.parametrize("error", [StoreFailed(), RuntimeError("never seen before")])
async def test_a_report_that_cannot_be_stored_closes_the_session_for_another_try(
    gateway: Gateway, world: World, error: Exception
) -> None:
    websocket, job = await gateway.with_job()
    world.fail_writes(error)
    websocket.say(an_event(job, 1, STARTED))
    code, reason = await websocket.hear(tuple)
    assert code == TRY_AGAIN
    assert "send it again" in reason
    again = await gateway.attached(held=[world.held(job)])
    again.say(an_event(job, 1, STARTED))
    assert (await again.hear(protocol.Ack)).seq == 1


@pytest.mark.parametrize("error", [StoreFailed(), RuntimeError("never seen before")])
async def test_a_hello_that_cannot_be_stored_closes_the_session_for_another_try(
    gateway: Gateway, world: World, error: Exception
) -> None:
    world.fail_writes(error)
    websocket = gateway.dial()
    websocket.say(a_hello())
    assert (await websocket.hear(tuple))[0] == TRY_AGAIN
    await gateway.ended()
    box = world.fleet.member("box")
    assert (box.state, box.link) == (AWAITED, None)
    await gateway.attached()


# ---------------------------------------------------------------- requests and hand-offs


async def test_kept_outcomes_are_served_under_the_live_lease_only(gateway: Gateway, world: World) -> None:
    websocket, job = await gateway.with_job()
    lease = job.lease or 0
    value = {"enc": "json", "text": "1"}
    checkpoint = {"key": "k", "name": "fit", "state": "completed", "started_at": 1.0, "ended_at": 2.0}
    websocket.say(an_event(job, 1, STARTED, ["checkpoint", {**checkpoint, "value": value}]))
    await websocket.hear(protocol.Ack)
    websocket.say(protocol.Request("q1", job.id, lease, "checkpoints", {"after": 0}))
    reply = await websocket.hear(protocol.Reply)
    assert (reply.id, reply.error, reply.body["items"][0]["key"]) == ("q1", None, "k")
    websocket.say(protocol.Request("q2", job.id, lease - 1, "checkpoints", {"after": 0}))
    assert (await websocket.hear(protocol.Fenced)).lease == lease - 1


async def test_a_declared_secret_goes_to_the_worker_that_holds_the_job_alone(gateway: Gateway) -> None:
    await gateway.secrets.set("db", "hunter2-hunter2", "anna")
    websocket, job = await gateway.with_job(settings=JobSettings(secrets=("db", "gone")))
    lease = job.lease or 0
    websocket.say(protocol.Request("q1", job.id, lease, "secret", {"name": "db"}))
    assert (await websocket.hear(protocol.Reply)).body == {"value": "hunter2-hunter2"}
    for number, (name, words) in enumerate((("gone", "there is no secret"), ("other", "does not declare"))):
        websocket.say(protocol.Request(f"r{number}", job.id, lease, "secret", {"name": name}))
        reply = await websocket.hear(protocol.Reply)
        assert reply.body is None
        assert words in reply.error
    other = gateway.dial("thief")
    other.say(a_hello(name="thief"))
    await other.hear(protocol.Welcome)
    other.say(protocol.Request("q2", job.id, lease, "secret", {"name": "db"}))
    assert (await other.hear(protocol.Fenced)).lease == lease
    told = [(entry.actor, entry.subject, entry.outcome) for entry in (await gateway.audit.page()).items]
    assert told == [("box", "other", "refused"), ("box", "gone", "refused"), ("box", "db", "done")]


async def test_a_job_reads_variables(gateway: Gateway) -> None:
    await gateway.variables.set("limit", {"rows": [1, None]}, "anna")
    websocket, job = await gateway.with_job()
    websocket.say(protocol.Request("q1", job.id, job.lease or 0, "variable", {"name": "limit"}))
    assert (await websocket.hear(protocol.Reply)).body == {"value": {"rows": [1, None]}}
    websocket.say(protocol.Request("q2", job.id, job.lease or 0, "variable", {"name": "none"}))
    assert "there is no variable 'none'" in (await websocket.hear(protocol.Reply)).error


@pytest.mark.parametrize(
    ("kind", "args"), [("unheard of", {}), ("checkpoints", {}), ("checkpoints", {"after": "soon"})]
)
async def test_a_request_that_cannot_be_answered_is_answered_with_why(
    gateway: Gateway, kind: str, args: dict[str, Any]
) -> None:
    websocket, job = await gateway.with_job()
    websocket.say(protocol.Request("q1", job.id, job.lease or 0, kind, args))
    reply = await websocket.hear(protocol.Reply)
    assert reply.body is None
    assert repr(kind) in reply.error


@pytest.mark.fault("1.7")
async def test_an_assign_that_is_not_accepted_in_time_closes_the_session(
    gateway: Gateway, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B018: the job is queued again when the agent's next hello does not list it."""
    websocket, job = await gateway.with_job()
    clock = Clock(monotonic=asyncio.get_running_loop().time() + TIMES.handoff_s + 1.0)
    monkeypatch.setattr(socket_module, "time", clock)
    link = world.fleet.member("box").link
    assert isinstance(link, Socket)
    link._check_handoffs()
    assert await websocket.hear() == (TRY_AGAIN, "an assign was not accepted in time")
    assert (await world.job(job)).state == "leased", "the agent may have it all the same"
    await gateway.attached(held=[])
    after = await world.job(job)
    assert (after.state, after.crashes) == ("queued", 0)


async def test_an_accepted_assign_is_not_overdue(
    gateway: Gateway, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    websocket, job = await gateway.with_job()
    websocket.say(protocol.Accepted(job.id, job.lease or 0))
    await gateway.answered(websocket)
    monkeypatch.setattr(socket_module, "time", Clock(monotonic=1e12))
    link = world.fleet.member("box").link
    assert isinstance(link, Socket)
    link._check_handoffs()
    await gateway.answered(websocket)


async def test_a_report_says_that_the_assign_was_accepted(
    gateway: Gateway, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    websocket, job = await gateway.with_job()
    started = ["started", {"at": 1.0, "pid": 1, "python": "3.12", "host": "h"}]
    websocket.say(protocol.Event(job.id, job.lease or 0, protocol.ENGINE, 1, [started]))
    await websocket.hear(protocol.Ack)
    monkeypatch.setattr(socket_module, "time", Clock(monotonic=1e12))
    link = world.fleet.member("box").link
    assert isinstance(link, Socket)
    link._check_handoffs()
    await gateway.answered(websocket)


async def test_the_server_looks_by_itself_whether_an_assign_was_accepted(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateways, "TIMES", TIMES.scaled(0.01))
    async with a_gateway(World(store), tmp_path) as gateway:
        websocket, _ = await gateway.with_job()
        assert (await websocket.hear(tuple))[0] == TRY_AGAIN
