"""The websocket shell around a `Session`: reads frames, sends frames, and waits for the store elsewhere.

Heartbeats are answered in the reading loop itself and wait for nothing. Reports are recorded by tasks that
start in the order of the frames, so that many of them share a commit; each is acknowledged after it. What
is there to be sent at the same time goes in one frame, to a worker that reads `Several`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from itertools import groupby
from typing import Any, ClassVar

from starlette.websockets import WebSocket, WebSocketDisconnect

from farhand_worker import protocol

from ..engine.attachment import Attached, Attachments, Credential
from ..engine.member import LOST, Member
from ..engine.needs import Needs
from ..engine.reports import Reports
from ..engine.tunnels import Tunnels
from ..errors import FarhandError, StaleLease
from ..model import LOCAL_WORKER
from .frames import encode
from .session import CLOSED, GREETING, Session

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
_GREETINGS = (protocol.Welcome, protocol.Refused)
_TOGETHER = protocol.BATCH_BYTES
"""A frame of several messages is no larger."""


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
    ) -> None:
        self._websocket = websocket
        self._credential = credential
        self._attachments = attachments
        self._reports = reports
        self._needs = needs
        self._tunnels = tunnels
        self._welcome = welcome
        self._times = times
        self._session = Session(times)
        self._outgoing: asyncio.Queue[str | tuple[int, str]] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked: set[asyncio.Task[None]] = set()
        self._early: list[Any] = []
        self._member: Member | None = None
        self._watching_handoffs = False
        self._several = False

    # ------------------------------------------------------------ the link

    def send(self, message: Any) -> None:
        """Send ``message`` after all sent before it, and nothing before the welcome."""
        if self._session.state == GREETING and not isinstance(message, _GREETINGS):
            self._early.append(message)
        elif self._session.state != CLOSED:
            if type(message) is protocol.Outcome and self._credential.name == LOCAL_WORKER:
                message = self._needs.seen(message)
            self._outgoing.put_nowait(encode(message))

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
            self._outgoing.put_nowait((code, cut))

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
        sender = asyncio.create_task(self._send_frames())
        receiver = asyncio.create_task(self._receive_frames())
        try:
            await asyncio.wait({sender, receiver}, return_when=asyncio.FIRST_COMPLETED)
            if self._session.state == CLOSED:
                await asyncio.wait(
                    {sender}, timeout=_FAREWELL_S
                )  # what was said last arrives, with the reason
        finally:
            self._session.close()
            for task in (sender, receiver, ending, *self._asked):
                task.cancel()
            await asyncio.gather(sender, receiver, ending, return_exceptions=True)
            if self._member is not None:
                self._attachments.closed(self._member, self)

    async def _close_when(self, revoked: asyncio.Event) -> None:
        await revoked.wait()
        self.close("its token has been revoked")

    async def _send_frames(self) -> None:
        frame: str | tuple[int, str] | None = None
        answered = False
        while True:
            texts: list[str] = []
            frame = frame or await self._outgoing.get()
            while isinstance(frame, str) and (not texts or sum(map(len, texts)) + len(frame) <= _TOGETHER):
                texts.append(frame)
                # The answer to the hello is read before anything else: it goes alone.
                several = self._several and answered and not self._outgoing.empty()
                frame = self._outgoing.get_nowait() if several else None
            try:
                if texts:
                    await self._websocket.send_text(protocol.encode_several(texts))
                    answered = True
                elif isinstance(frame, tuple):
                    await self._websocket.close(*frame)
                    return
            except (WebSocketDisconnect, RuntimeError, OSError):
                return

    async def _receive_frames(self) -> None:
        while self._session.state != CLOSED:
            try:
                text = await self._websocket.receive_text()
            except WebSocketDisconnect as gone:
                if gone.code in _BROKEN:
                    self._violated(_BROKEN[gone.code])
                return
            except KeyError:
                self._violated("a binary frame, where every frame is a text")
                return
            except RuntimeError:
                return
            if self._session.state != CLOSED:
                await self._take(text)

    async def _take(self, text: str) -> None:
        try:
            messages = self._session.receive(text)
            for kind, alike in groupby(messages, key=type):
                if kind is protocol.Event:
                    self._on_events(list(alike))
                    continue
                for message in alike:
                    await self._HANDLERS[kind](self, message)
        except protocol.ProtocolViolation as violation:
            self._violated(str(violation))
        except Exception:  # whatever it was: the worker tries again, and its engines go on meanwhile
            log.exception("the session of worker %s failed", self._credential.name)
            self._close(_TRY_AGAIN, "the server failed; try again")

    def _violated(self, what: str) -> None:
        """The worker broke the protocol: said in the log, and in the reason of the close by its name."""
        log.warning("worker %s broke the protocol: %s", self._credential.name, what)
        self._close(_VIOLATION, f"{protocol.ProtocolViolation.code}: {what}")

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
        self._several = hello.several
        self.send(self._welcome(hello, answer, self._session.version(hello)))
        self._session.attached()
        for early in self._early:
            self.send(early)
        for outcome in await self._attachments.outcomes(answer.member):
            self.send(outcome)
        self._attachments.welcomed(answer.member, self)

    async def _on_heartbeat(self, heartbeat: protocol.Heartbeat) -> None:
        member = self._attached()
        self._attachments.heard(member)
        member.behind = frozenset(heartbeat.behind)
        if heartbeat.at is not None:
            member.skew_s = heartbeat.at - time.time()
        if member.state == LOST:
            self._attachments.back(member)
        self.send(protocol.Ack(n=heartbeat.n))

    async def _on_accepted(self, accepted: protocol.Accepted) -> None:
        self._session.accepted(accepted.job, accepted.lease)

    def _on_events(self, events: list[protocol.Event]) -> None:
        for event in events:
            self._session.accepted(event.job, event.lease)
        self._spawn(self._record_all(events))

    async def _on_request(self, request: protocol.Request) -> None:
        self._spawn(self._reply(request), self._asked)

    async def _on_drained(self, _: protocol.Drained) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._attachments.drained(self._attached())

    async def _on_changed(self, changed: protocol.Changed) -> None:
        self._spawn(self._attachments.changed(self._attached(), changed))

    async def _on_no_tunnel(self, refusal: protocol.NoTunnel) -> None:
        self._tunnels.refused(refusal.id, self._credential.name, refusal.message)

    async def _on_bye(self, bye: protocol.Bye) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._attachments.leave(self._attached(), self, bye.reason)

    _HANDLERS: ClassVar[dict[type, Callable[[Socket, Any], Awaitable[None]]]] = {
        protocol.Hello: _on_hello,
        protocol.Heartbeat: _on_heartbeat,
        protocol.Accepted: _on_accepted,
        protocol.Request: _on_request,
        protocol.Drained: _on_drained,
        protocol.Bye: _on_bye,
        protocol.Changed: _on_changed,
        protocol.NoTunnel: _on_no_tunnel,
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

    async def _record_all(self, events: list[protocol.Event]) -> None:
        """Record what came in one frame in one transaction; what is refused there, each on its own."""
        if len(events) > 1:
            try:
                seqs = await self._reports.record_all(events, self._credential.name)
            except (FarhandError, protocol.ProtocolViolation) as error:
                log.debug("%d reports are recorded one by one: %s", len(events), error)
            except Exception:  # whatever it was, it is looked at once more for each of them
                log.exception("%d reports could not be stored together", len(events))
            else:
                for event, seq in zip(events, seqs, strict=True):
                    self._acknowledge(event, seq)
                return
        for event in events:
            await self._record(event)

    def _acknowledge(self, event: protocol.Event, seq: int) -> None:
        self.send(protocol.Ack(job=event.job, lease=event.lease, source=event.source, seq=seq))

    async def _record(self, event: protocol.Event) -> None:
        try:
            seq = await self._reports.record(event, self._credential.name)
        except StaleLease as stale:
            self.send(protocol.Fenced(event.job, event.lease, str(stale), stale.code))
        except protocol.ProtocolViolation as violation:
            self._violated(str(violation))
        except FarhandError as error:
            log.error("a report of job %s could not be stored: %s", event.job, error)
            self._close(_TRY_AGAIN, "the store could not commit; send it again")
        except Exception:  # whatever it was: a report without an answer would keep the worker waiting
            log.exception("a report of job %s could not be stored", event.job)
            self._close(_TRY_AGAIN, "the report could not be stored; send it again")
        else:
            self._acknowledge(event, seq)

    async def _reply(self, request: protocol.Request) -> None:
        try:
            if not await self._reports.is_current(request.job, request.lease, self._credential.name):
                raise StaleLease(f"lease {request.lease} of job {request.job} is not current")
            body = await self._REQUESTS[request.kind](self, request)
        except (KeyError, TypeError, ValueError) as error:
            message = f"cannot answer a request of kind {request.kind!r}: {error!r}"
            self.send(protocol.Reply(request.id, request.job, request.lease, error=message))
        except StaleLease as stale:
            self.send(protocol.Fenced(request.job, request.lease, str(stale), stale.code))
        except FarhandError as error:
            self.send(
                protocol.Reply(request.id, request.job, request.lease, error=str(error), code=error.code)
            )
        else:
            self.send(protocol.Reply(request.id, request.job, request.lease, body=body))

    async def _checkpoints(self, request: protocol.Request) -> dict[str, Any]:
        return await self._reports.kept(request.job, int(request.args["after"]))

    async def _secret(self, request: protocol.Request) -> dict[str, Any]:
        name = str(request.args["name"])
        return await self._needs.secret(self._credential.name, request.job, request.lease, name)

    async def _service(self, request: protocol.Request) -> dict[str, Any]:
        return await self._needs.service(str(request.args["name"]), _wait_s(request))

    async def _laid(self, request: protocol.Request) -> dict[str, Any]:
        return await self._needs.laid(self._credential.name, request.args)

    async def _stream(self, request: protocol.Request) -> dict[str, Any]:
        return await self._needs.stream(request.job, request.args, _wait_s(request))

    async def _variable(self, request: protocol.Request) -> dict[str, Any]:
        return await self._needs.variable(str(request.args["name"]))

    _REQUESTS: ClassVar[dict[str, Callable[[Socket, protocol.Request], Awaitable[dict[str, Any]]]]] = {
        "checkpoints": _checkpoints,
        "laid": _laid,
        "secret": _secret,
        "service": _service,
        "stream": _stream,
        "variable": _variable,
    }


def _wait_s(request: protocol.Request) -> float:
    """So long a request may be held back for its answer."""
    wait_s = request.args.get("wait_s")
    return float(wait_s) if isinstance(wait_s, int | float) else 0.0
