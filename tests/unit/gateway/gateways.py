"""The websocket shell over a real store, and the other end of its websocket, in memory."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from anyio import fail_after
from starlette.websockets import WebSocketDisconnect

from farhand.blobs import Blobs
from farhand.engine.attachment import Attached, Credential
from farhand.engine.audit import Audit
from farhand.engine.masking import Masker
from farhand.engine.needs import Needs
from farhand.engine.secrets import Secrets
from farhand.engine.tunnels import Tunnels
from farhand.engine.variables import Variables
from farhand.gateway.socket import Socket
from farhand.model import Job
from farhand_worker import protocol
from tests.unit.engine.records import a_hello
from tests.unit.engine.world import TIMES, World

VIOLATION, TRY_AGAIN, ORDERLY = 1002, 1013, 1000


class FakeWebSocket:
    """The other end of a websocket, in memory. Every call gives way to others, as a real one may.

    It is read and written directly as well, where that is asked for; what the session does not take so is
    received. ``ready``: whether it takes what is written.
    """

    def __init__(self, direct: bool = True) -> None:
        self.direct = direct
        self.ready = True
        self.frames: list[str] = []
        self._take: Callable[[str], bool] = lambda _: False
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
        self.write(text)

    def write(self, text: str) -> None:
        self.frames.append(text)
        for message in protocol.decode_each(text):
            self.outgoing.put_nowait(message)

    def take_by(self, take: Callable[[str], bool]) -> None:
        self._take = take

    async def close(self, code: int, reason: str) -> None:
        await asyncio.sleep(0)
        self.closed = code, reason
        self.outgoing.put_nowait(self.closed)

    # ------------------------------------------------------------ the agent's side

    def say(self, *messages: Any) -> None:
        """Frames from the agent."""
        for message in messages:
            text = message if isinstance(message, str) else protocol.encode(message)
            if not (self.incoming.empty() and self._take(text)):
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

    def __init__(self, world: World, home: Path) -> None:
        self.world = world
        self.home = home
        self.blobs = Blobs(home / "blobs")
        masker = Masker()
        self.audit = Audit(world.store, masker)
        self.secrets = Secrets(world.store, Path(), masker, self.audit, {"FARHAND_SEALING_KEY": KEY})
        self.variables = Variables(world.store)
        self.tunnels = Tunnels()
        self.turn = world.consequences.turn
        self.direct = True
        world.store.database.answer_within(self.turn)
        self.needs = Needs(
            world.store,
            self.secrets,
            self.variables,
            world.hosting,
            world.streams,
            self.blobs,
        )
        self.serving: list[asyncio.Task[None]] = []

    def dial(self, name: str = "box", labels: tuple[str, ...] = ()) -> FakeWebSocket:
        """A worker connects."""
        websocket = FakeWebSocket(self.direct)
        socket = Socket(
            websocket,  # type: ignore[arg-type]
            Credential(name, labels, "jti"),
            self.world.attachments,
            self.world.reports,
            self.needs,
            self.tunnels,
            self._welcome,
            TIMES,
            self.turn,
            websocket if self.direct else None,
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
async def a_gateway(world: World, home: Path) -> AsyncIterator[Gateway]:
    gateway = Gateway(world, home)
    try:
        yield gateway
    finally:
        for task in gateway.serving:
            task.cancel()
        await asyncio.gather(*gateway.serving, return_exceptions=True)


def an_event(job: Job, first: int, *entries: list[Any]) -> protocol.Event:
    return protocol.Event(job.id, job.lease or 0, "engine", first, list(entries))


STARTED = ["started", {"at": 2.0, "pid": 1, "python": "3.11"}]


COMPLETED = ["result", {"state": "completed", "at": 3.0}]


def a_line(text: str) -> list[Any]:
    return ["log", {"at": 2.0, "text": text}]
