"""The route that workers dial: who may come in, and the `Socket` each of them gets."""

from __future__ import annotations

import logging
from dataclasses import asdict

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from farhand_worker import protocol

from ..engine.attachment import Attached, Credential
from ..engine.roles import MAY, Identity
from ..engine.services import Services
from ..errors import FarhandError, Forbidden, Unauthorized
from .pipe import WorkerPipe
from .socket import Socket

log = logging.getLogger("farhand")

DIRECT = "farhand.frames"
"""The extension of ASGI by which the web server has us take frames as they arrive."""

ATTACH_PATH = "/api/v1/workers/attach"


class Endpoint:
    """``WS /api/v1/workers/attach``: sessions, and the tunnels that workers are asked for in them."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The endpoint as an application of its own."""
        await self.attach(WebSocket(scope, receive, send))

    async def attach(self, websocket: WebSocket) -> None:
        """Let a worker with a valid token in; whoever has none is told so before the handshake ends."""
        services = self._services
        try:
            identity = await self._identity(websocket)
        except FarhandError as error:
            client = websocket.client.host if websocket.client else "?"
            log.warning("a worker that dialled from %s is refused: %s", client, error)
            if worker := error.details.get("worker"):
                await services.worker_events.refused(worker, error.code, str(error), client)
            body = {"type": "about:blank", "title": type(error).__name__, "status": error.status}
            body |= {"code": error.code, "detail": str(error)}
            response = JSONResponse(body, error.status, media_type="application/problem+json")
            await websocket.send_denial_response(response)
            return
        await websocket.accept()
        tunnel = websocket.headers.get(protocol.TUNNEL_HEADER)
        if tunnel is not None:
            await self._carry(websocket, tunnel, identity)
            return
        attachments, reports = services.attachments, services.reports
        credential = Credential(identity.name, identity.labels, identity.jti, identity.expires_at)
        asked = services.needs, services.tunnels
        direct = websocket.scope.get("extensions", {}).get(DIRECT)
        sending = services.turn, direct
        socket = Socket(
            websocket, credential, attachments, reports, *asked, self._welcome, services.times, *sending
        )
        with services.tokens.watch(identity) as revoked:
            await socket.serve(revoked)

    async def _carry(self, websocket: WebSocket, tunnel: str, identity: Identity) -> None:
        """A connection to a service, for whoever asked for it; it ends with the worker's token, too."""
        pipe = WorkerPipe(websocket)
        if not self._services.tunnels.arrived(tunnel, identity.name, pipe):
            await websocket.close(1008, "nobody waits for this tunnel")
            return
        with self._services.tokens.watch(identity) as revoked:
            await pipe.until_closed(revoked)

    async def _identity(self, websocket: WebSocket) -> Identity:
        scheme, _, text = websocket.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not text:
            raise Unauthorized("a worker's token is needed in the Authorization header")
        address = websocket.client.host if websocket.client else ""
        session = websocket.headers.get("farhand-session", "")
        identity = await self._services.tokens.verify(text.strip(), address, session)
        if identity.role not in MAY["attach"]:
            raise Forbidden(f"a token of role {identity.role} attaches no worker; mint one of role worker")
        return identity

    def _welcome(self, hello: protocol.Hello, attached: Attached, version: int) -> protocol.Welcome:
        services = self._services
        session_key = services.tokens.session_key(hello.instance, attached.member.jti)
        return protocol.Welcome(
            name=attached.member.name,
            protocol=version,
            incarnation=services.store.meta.incarnation(),
            times=asdict(services.times),
            runtime=services.runtime,
            session_key=session_key,
            resume=[protocol.as_dict(resume) for resume in attached.resume],
            labels=sorted(attached.member.labels),
            limits=services.limits,
            blobs=services.blob_probe,
            several=True,
        )
