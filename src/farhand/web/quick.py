"""The request that comes by the thousand, starting a run, answered without the framework's machinery.

`Quick` stands before the application and answers exactly as the route `start_run` would, which stays the
one that is described. Whatever is not plainly such a request (another content type, a cookie in place of a
token, a body of another shape), and whatever is refused, goes on to the route with all that was read of it,
and is answered or refused there. That the store fails is said here: it may take as long to fail again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..engine.audit import Told
from ..engine.roles import Identity, check
from ..engine.services import Services
from ..errors import StoreFailed
from ..model import Run
from .audit import tell
from .flows import Start, start_run
from .guard import RAW_HEADERS, Guard, with_headers
from .handlers import masked
from .problems import internal, of_error
from .views import encoded, run_view

_PATH = re.compile(r"/api/v1/flows/([^/]+)/runs")
_BEARER = "bearer "
_ACTION = start_run.__name__
_decode = msgspec.json.Decoder(Start).decode


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request to start a run of ``flow``, by whoever has ``token``."""

    flow: str
    token: str
    address: str


class Quick:
    """An ASGI layer around the whole application; ``state`` is that application's."""

    def __init__(self, app: ASGIApp, guard: Guard, state: Any) -> None:
        self._app = app
        self._guard = guard
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = self._asked(scope)
        if asked is None:
            await self._app(scope, receive, send)
            return
        read, whole = await _read(receive, self._guard.body_bytes_max)
        start = _start_in(read) if whole else None
        answered = start is not None and await self._answer(asked, start, scope, receive, send)
        if not answered:
            await self._app(scope, _again(read, receive), send)

    def _asked(self, scope: Scope) -> _Asked | None:
        """What a request asks for; None for any that is not plainly one to start a run."""
        if scope["type"] != "http" or scope["method"] != "POST" or scope.get("root_path"):
            return None
        match = _PATH.fullmatch(self._guard.inside(scope)["path"])
        if match is None:
            return None
        headers: dict[bytes, bytes] = dict(scope["headers"])
        token = headers.get(b"authorization", b"").decode("latin-1")
        if headers.get(b"content-type") != b"application/json" or token[: len(_BEARER)].lower() != _BEARER:
            return None
        if b"farhand-session" in headers or not self._guard.admits(scope):
            return None
        client = scope.get("client")
        return _Asked(match.group(1), token[len(_BEARER) :].strip(), client[0] if client else "")

    async def _answer(self, asked: _Asked, start: Start, scope: Scope, receive: Receive, send: Send) -> bool:
        """Start the run and say so; false where the described route is to say what is against it."""
        services: Services = self._state.services
        who: Identity | None = None
        told: Told | None = None
        try:
            who = await services.tokens.verify(asked.token, asked.address)
            check(who, "start")
            told = Told(services.audit.entry(who, asked.address, _ACTION, asked.flow, 202))
            run = await services.runs.start(
                asked.flow, start.params, start.idempotency_key, start.sweep, told=told
            )
        except Exception as error:  # whatever it was: it is told below, or by the route
            if told is not None and told.written:
                await internal()(scope, receive, with_headers(send))
                raise
            if not isinstance(error, StoreFailed):
                return False  # the route meets it again, and answers, tells and logs it
            await masked(services, of_error(error))(scope, receive, with_headers(send))
            if who is not None:
                await tell(services, who, asked.address, _ACTION, asked.flow, error.status, {})
            return True
        if not told.written:  # an earlier run, which is asked for again
            await tell(services, who, asked.address, _ACTION, asked.flow, 202, {"made": run.id})
        await _accept(run, send)
        return True


async def _read(receive: Receive, bytes_max: int) -> tuple[list[Message], bool]:
    """The messages that bring the body, no more of them than a body may have, and whether they are all."""
    read, size = [await receive()], 0
    while read[-1]["type"] == "http.request":
        size += len(read[-1].get("body", b""))
        if size > bytes_max:
            return read, False
        if not read[-1].get("more_body"):
            return read, True
        read.append(await receive())
    return read, False


def _start_in(read: list[Message]) -> Start | None:
    """What the body says; None when it says something else."""
    try:
        return _decode(b"".join(message.get("body", b"") for message in read))
    except (msgspec.DecodeError, UnicodeError):
        return None


def _again(read: list[Message], receive: Receive) -> Receive:
    """``receive`` with what was read already before what comes."""
    messages = iter(read)

    async def receiving() -> Message:
        for message in messages:
            return message
        return await receive()

    return receiving


async def _accept(run: Run, send: Send) -> None:
    """Answer with the run."""
    content = encoded(run_view(run))
    headers = [
        (b"location", f"../../runs/{run.id}".encode()),
        (b"content-length", str(len(content)).encode()),
        (b"content-type", b"application/json"),
        *RAW_HEADERS,
    ]
    await send({"type": "http.response.start", "status": 202, "headers": headers})
    await send({"type": "http.response.body", "body": content})
