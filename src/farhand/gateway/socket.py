"""The websocket shell around a `Session`: reads frames, sends frames, and waits for the store elsewhere.

A frame is taken as it arrives, where the web server lets us have it then: heartbeats are answered at once
and wait for nothing, and reports are with the store's writer, in the order of the frames, before the next
frame is looked at. Many of them share a commit, and each is acknowledged after it. What the session has to
wait for (a hello, a goodbye) is left to a task, and so is all that comes before that is done. How much a
worker may have unacknowledged is bounded by its spools; no frame is left unread for that, since a heartbeat
may be behind it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from itertools import groupby
from typing import Any, ClassVar

from starlette.websockets import WebSocket, WebSocketDisconnect

from farhand_worker import protocol

from ..engine.attachment import Attached, Attachments, Credential
from ..engine.member import LOST, Member
from ..engine.needs import Needs
from ..engine.reports import Reports
from ..engine.tunnels import Tunnels
from ..engine.turn import Turn
from ..model import LOCAL_WORKER
from .frames import encode
from .outgoing import Direct, Outgoing
from .recording import Recorder
from .requests import Requests
from .session import ATTACHED, CLOSED, GREETING, Session

log = logging.getLogger("farhand")

_VIOLATION = 1002
_TRY_AGAIN = 1013
_ORDERLY = 1000
_FAREWELL_S = 1.0
_HANDOFF_SLACK_S = 0.01
_BROKEN = {
    1007: "a text that is not UTF-8",
    1009: f"a frame of more than {protocol.FRAME_BYTES_MAX} bytes",
}
"""What the websocket itself refuses, by the code that it closes with."""
_REASON_BYTES_MAX = 123  # RFC 6455: a control frame has 125 bytes, two of them for the code
_REPORTED = {protocol.Event}
_GREETINGS = (protocol.Welcome, protocol.Refused)


class Socket:
    """One worker's websocket. It is the `Link` that the services send through."""

    def __init__(
        self,
        websocket: WebSocket,
        credential: Credential,
        attachments: Attachments,
        reports: Reports,
        needs: Needs,
        tunnels: Tunnels,
        welcome: Callable[[protocol.Hello, Attached, int], protocol.Welcome],
        times: protocol.Times,
        turn: Turn,
        direct: Direct | None = None,
    ) -> None:
        self._websocket = websocket
        self._turn = turn
        self._direct = direct
        self._credential = credential
        self._attachments = attachments
        self._reports = reports
        self._needs = needs
        self._requests = Requests(reports, needs, credential.name)
        self._tunnels = tunnels
        self._welcome = welcome
        self._times = times
        self._session = Session(times)
        self._outgoing = Outgoing(websocket, direct, turn)
        self._recorder = Recorder(reports, credential.name, turn, self)
        self._listening = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked: set[asyncio.Task[None]] = set()
        self._early: list[Any] = []
        self._member: Member | None = None
        self._watching_handoffs = False

    # ------------------------------------------------------------ the link

    def send(self, message: Any) -> None:
        """Send ``message`` after all sent before it, and nothing before the welcome."""
        if self._session.state == GREETING and not isinstance(message, _GREETINGS):
            self._early.append(message)
        elif self._session.state != CLOSED:
            if type(message) is protocol.Outcome and self._credential.name == LOCAL_WORKER:
                message = self._needs.seen(message)
            self._outgoing.put(encode(message))

    def send_later(self, message: Any) -> None:
        """Send ``message``, which nobody waits for, with what is sent next."""
        if self._session.state == ATTACHED:
            self._outgoing.put_later(encode(message))
        else:
            self.send(message)

    def expect(self, job: str, lease: int) -> None:
        """An assign was sent; close the session unless it is accepted in time."""
        self._session.expect(job, lease, time.monotonic())
        if not self._watching_handoffs:
            self._watch_handoffs(self._times.handoff_s)

    def close(self, reason: str) -> None:
        """End the session; what still arrives is dropped unread."""
        self._close(_ORDERLY, reason)

    def _close(self, code: int, reason: str) -> None:
        if self._session.state != CLOSED:
            self._session.close()
            cut = reason.encode(errors="replace")[:_REASON_BYTES_MAX].decode(errors="ignore")
            self._outgoing.close(code, cut)

    def _watch_handoffs(self, delay_s: float) -> None:
        self._watching_handoffs = True
        asyncio.get_running_loop().call_later(delay_s + _HANDOFF_SLACK_S, self._check_handoffs)

    def _check_handoffs(self) -> None:
        """Look at the open hand-offs: one timer is under way at most, whatever their number."""
        self._watching_handoffs = False
        now = time.monotonic()
        overdue, due_at = self._session.overdue(now), self._session.due_at()
        if overdue is not None:
            log.warning("job %s was not accepted in time; its session is closed", overdue[0])
            self._close(_TRY_AGAIN, "an assign was not accepted in time")
        elif due_at is not None:
            self._watch_handoffs(due_at - now)

    # ------------------------------------------------------------ the loops

    async def serve(self, revoked: asyncio.Event | None = None) -> None:
        """Carry the session from the accepted handshake to its end, or until its token is revoked."""
        ending = asyncio.create_task(self._close_when(revoked or asyncio.Event()))
        sender = asyncio.create_task(self._outgoing.carry())
        receiver = asyncio.create_task(self._receive_frames())
        if self._direct is not None:
            self._direct.take_by(self._take_at_once)
        try:
            await asyncio.wait({sender, receiver}, return_when=asyncio.FIRST_COMPLETED)
            if self._session.state == CLOSED:
                await asyncio.wait(
                    {sender}, timeout=_FAREWELL_S
                )  # what was said last arrives, with the reason
        finally:
            self._session.close()
            for task in (sender, ending, *self._asked):
                task.cancel()
            if self._listening:  # else it ends by itself, with all that follows from the frame it is at
                receiver.cancel()
            await asyncio.gather(sender, receiver, ending, return_exceptions=True)
            if self._member is not None:
                self._attachments.closed(self._member, self)

    async def _close_when(self, revoked: asyncio.Event) -> None:
        await revoked.wait()
        self.close("its token has been revoked")

    async def _receive_frames(self) -> None:
        while self._session.state != CLOSED:
            self._listening = True
            try:
                text = await self._websocket.receive_text()
            except WebSocketDisconnect as gone:
                if gone.code in _BROKEN:
                    self.violated(_BROKEN[gone.code])
                return
            except KeyError:
                self.violated("a binary frame, where every frame is a text")
                return
            except RuntimeError:
                return
            finally:
                self._listening = False
            if self._session.state != CLOSED:
                await self._take(text)

    def _take_at_once(self, text: str) -> bool:
        """Whether a frame that has just arrived was taken. One is not while another is being taken, or when
        it holds what has to be waited for."""
        if not self._listening or self._session.state != ATTACHED:
            return False
        with self._turn:
            try:
                messages = self._session.receive(text)
                kinds = set(map(type, messages))
                if kinds == _REPORTED:
                    self._on_events(messages)
                elif kinds & self._WAITED_FOR.keys():
                    return False
                else:
                    for kind, alike in groupby(messages, key=type):
                        self._handle(kind, alike)
            except Exception as error:  # noqa: BLE001 whatever it is, it ends the session
                self._at_fault(error)
        return True

    async def _take(self, text: str) -> None:
        try:
            for kind, alike in groupby(self._session.receive(text), key=type):
                waited_for = self._WAITED_FOR.get(kind)
                if waited_for is None:
                    self._handle(kind, alike)
                    continue
                for message in alike:
                    await waited_for(self, message)
        except Exception as error:  # noqa: BLE001 whatever it is, it ends the session
            self._at_fault(error)

    def _handle(self, kind: type, messages: Iterable[Any]) -> None:
        """Messages of one kind that follow on one another."""
        if kind is protocol.Event:
            self._on_events(list(messages))
            return
        for message in messages:
            self._HANDLERS[kind](self, message)

    def _at_fault(self, error: Exception) -> None:
        """End the session for what went wrong with a frame, and say whose fault it is."""
        if isinstance(error, protocol.ProtocolViolation):
            self.violated(str(error))
        else:
            log.error("the session of worker %s failed", self._credential.name, exc_info=error)
            self.fail("the server failed; try again")

    def violated(self, what: str) -> None:
        """The worker broke the protocol: said in the log, and in the reason of the close by its name."""
        log.warning("worker %s broke the protocol: %s", self._credential.name, what)
        self._close(_VIOLATION, f"{protocol.ProtocolViolation.code}: {what}")

    def fail(self, reason: str) -> None:
        """The server could not do its part: the worker comes again, and its engines go on meanwhile."""
        self._close(_TRY_AGAIN, reason)

    # ------------------------------------------------------------ what a worker says

    async def _on_hello(self, hello: protocol.Hello) -> None:
        address = self._websocket.client.host if self._websocket.client else ""
        answer = self._session.greet(hello, self._credential.labels) or await self._attachments.attach(
            hello, self._credential, self, address
        )
        if isinstance(answer, protocol.Refused):
            await self._attachments.refused(hello, self._credential.name, answer, address)
            self.send(answer)
            self._close(_ORDERLY, answer.code)
            return
        self._member = answer.member
        self._outgoing.several = hello.several
        self.send(self._welcome(hello, answer, self._session.version(hello)))
        self._session.attached()
        for early in self._early:
            self.send(early)
        for outcome in await self._attachments.outcomes(answer.member):
            self.send(outcome)
        self._attachments.welcomed(answer.member, self)

    def _on_heartbeat(self, heartbeat: protocol.Heartbeat) -> None:
        member = self._attached()
        self._attachments.heard(member)
        member.behind = frozenset(heartbeat.behind)
        if heartbeat.at is not None:
            member.skew_s = heartbeat.at - time.time()
        if member.state == LOST:
            self._attachments.back(member)
        self.send(protocol.Ack(n=heartbeat.n))

    def _on_accepted(self, accepted: protocol.Accepted) -> None:
        self._session.accepted(accepted.job, accepted.lease)

    def _on_events(self, events: list[protocol.Event]) -> None:
        self._recorder.record(events)
        for event in events:
            self._session.accepted(event.job, event.lease)

    def _on_request(self, request: protocol.Request) -> None:
        self._spawn(self._reply(request), self._asked)

    async def _on_drained(self, _: protocol.Drained) -> None:
        await self._until_recorded()
        await self._attachments.drained(self._attached())

    def _on_changed(self, changed: protocol.Changed) -> None:
        self._spawn(self._attachments.changed(self._attached(), changed))

    def _on_no_tunnel(self, refusal: protocol.NoTunnel) -> None:
        self._tunnels.refused(refusal.id, self._credential.name, refusal.message)

    async def _on_bye(self, bye: protocol.Bye) -> None:
        await self._until_recorded()
        await self._attachments.leave(self._attached(), self, bye.reason)

    _HANDLERS: ClassVar[dict[type, Callable[[Socket, Any], None]]] = {
        protocol.Heartbeat: _on_heartbeat,
        protocol.Accepted: _on_accepted,
        protocol.Request: _on_request,
        protocol.Changed: _on_changed,
        protocol.NoTunnel: _on_no_tunnel,
    }
    _WAITED_FOR: ClassVar[dict[type, Callable[[Socket, Any], Awaitable[None]]]] = {
        protocol.Hello: _on_hello,
        protocol.Drained: _on_drained,
        protocol.Bye: _on_bye,
    }

    def _attached(self) -> Member:
        if self._member is None:
            raise protocol.ProtocolViolation("a session begins with hello")
        return self._member

    def _spawn(self, work: Any, among: set[asyncio.Task[None]] | None = None) -> None:
        """Let it run beside; those that report have to end before a goodbye, those that ask need not."""
        tasks = self._tasks if among is None else among
        task = asyncio.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _until_recorded(self) -> None:
        """Wait until all that was reported is recorded, and what changed is."""
        await self._recorder.until_recorded()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _reply(self, request: protocol.Request) -> None:
        self.send(await self._requests.answered(request))
