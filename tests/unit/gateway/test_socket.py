"""The websocket shell: what is answered at once, what waits for the store, and how a session ends."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from anyio import fail_after
from starlette.websockets import WebSocketDisconnect

from farhand.engine.attachment import Attached, Credential
from farhand.engine.audit import Audit
from farhand.engine.fleet import AWAITED, LOST, OFFLINE, ONLINE
from farhand.engine.masking import Masker
from farhand.engine.needs import Needs
from farhand.engine.secrets import Secrets
from farhand.engine.variables import Variables
from farhand.errors import StoreFailed
from farhand.gateway import socket as socket_module
from farhand.gateway.socket import Socket
from farhand.model import Job, JobSettings
from farhand.store import Store
from farhand_worker import protocol
from tests.unit.engine.records import Clock, a_hello
from tests.unit.engine.world import TIMES, World

pytestmark = pytest.mark.anyio

VIOLATION, TRY_AGAIN, ORDERLY = 1002, 1013, 1000


class FakeWebSocket:
    """The other end of a websocket, in memory. Every call gives way to others, as a real one may."""

    def __init__(self) -> None:
        self.client = SimpleNamespace(host="10.0.0.1")
        self.incoming: asyncio.Queue[str | None] = asyncio.Queue()
        self.outgoing: asyncio.Queue[Any] = asyncio.Queue()
        self.closed: tuple[int, str] | None = None

    async def receive_text(self) -> str:
        text = await self.incoming.get()
        if text is None:
            raise WebSocketDisconnect(1006)
        return text

    async def send_text(self, text: str) -> None:
        await asyncio.sleep(0)
        self.outgoing.put_nowait(protocol.decode(text))

    async def close(self, code: int, reason: str) -> None:
        await asyncio.sleep(0)
        self.closed = code, reason
        self.outgoing.put_nowait(self.closed)

    # ------------------------------------------------------------ the agent's side

    def say(self, *messages: Any) -> None:
        """Frames from the agent."""
        for message in messages:
            text = message if isinstance(message, str) else protocol.encode(message)
            self.incoming.put_nowait(text)

    def drop(self) -> None:
        """The connection breaks."""
        self.incoming.put_nowait(None)

    async def hear(self, kind: type = object) -> Any:
        """The next frame of a kind (the closing one is a tuple)."""
        with fail_after(5):
            while not isinstance(frame := await self.outgoing.get(), kind):
                pass
        return frame


KEY = base64.b64encode(bytes(range(32))).decode()


class Gateway:
    """Sockets on the services of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        masker = Masker()
        self.audit = Audit(world.store, masker)
        self.secrets = Secrets(world.store, Path(), masker, self.audit, {"FARHAND_SEALING_KEY": KEY})
        self.variables = Variables(world.store)
        self.serving: list[asyncio.Task[None]] = []

    def dial(self, name: str = "box", labels: tuple[str, ...] = ()) -> FakeWebSocket:
        """A worker connects."""
        websocket = FakeWebSocket()
        socket = Socket(
            websocket,  # type: ignore[arg-type]
            Credential(name, labels, "jti"),
            self.world.attachments,
            self.world.reports,
            Needs(self.world.store, self.secrets, self.variables),
            self._welcome,
            TIMES,
        )
        self.serving.append(asyncio.create_task(socket.serve()))
        return websocket

    async def attached(self, **hello: Any) -> FakeWebSocket:
        """A worker connects and is welcomed."""
        websocket = self.dial()
        websocket.say(a_hello(**hello))
        await websocket.hear(protocol.Welcome)
        return websocket

    async def with_job(self, **fields: Any) -> tuple[FakeWebSocket, Job]:
        """An attached worker that was handed a job."""
        websocket = await self.attached()
        await self.answered(websocket)
        job = await self.world.start_run(**fields)
        await self.world.hand_over()
        await websocket.hear(protocol.Assign)
        return websocket, await self.world.job(job)

    async def answered(self, websocket: FakeWebSocket) -> None:
        """Wait until all that was said before has been handled."""
        websocket.say(protocol.Heartbeat(10_000))
        while (await websocket.hear(protocol.Ack)).n != 10_000:
            pass

    async def ended(self) -> None:
        """Wait until every session has ended."""
        with fail_after(5):
            await asyncio.gather(*self.serving)

    @staticmethod
    def _welcome(hello: protocol.Hello, attached: Attached, version: int) -> protocol.Welcome:
        resume = [protocol.as_dict(one) for one in attached.resume]
        return protocol.Welcome(attached.member.name, version, "inc", {}, "sha256:0", "key", resume)


@asynccontextmanager
async def a_gateway(world: World) -> AsyncIterator[Gateway]:
    gateway = Gateway(world)
    try:
        yield gateway
    finally:
        for task in gateway.serving:
            task.cancel()
        await asyncio.gather(*gateway.serving, return_exceptions=True)


@pytest.fixture
async def world(store: Store) -> World:
    return World(store)


@pytest.fixture
async def gateway(world: World) -> AsyncIterator[Gateway]:
    async with a_gateway(world) as gateway:
        yield gateway


def an_event(job: Job, first: int, *entries: list[Any]) -> protocol.Event:
    return protocol.Event(job.id, job.lease or 0, "engine", first, list(entries))


STARTED = ["started", {"at": 2.0, "pid": 1, "python": "3.11"}]
COMPLETED = ["result", {"state": "completed", "at": 3.0}]


def a_line(text: str) -> list[Any]:
    return ["log", {"at": 2.0, "text": text}]


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
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.TIMES", TIMES.scaled(0.01))
    async with a_gateway(World(store)) as gateway:
        websocket, _ = await gateway.with_job()
        assert (await websocket.hear(tuple))[0] == TRY_AGAIN
