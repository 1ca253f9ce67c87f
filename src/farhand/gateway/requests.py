"""What jobs ask the server for over their worker's session, each kind by its own method."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

from farhand_worker import protocol

from ..engine.needs import Needs
from ..engine.reports import Reports
from ..errors import FarhandError, StaleLease


class Requests:
    """Answers the jobs of one worker."""

    def __init__(self, reports: Reports, needs: Needs, worker: str) -> None:
        self._reports = reports
        self._needs = needs
        self._worker = worker

    async def answered(self, request: protocol.Request) -> protocol.Reply | protocol.Fenced:
        """The answer to a request: a reply, which may say why there is none, or that the lease has ended."""
        try:
            if not await self._reports.is_current(request.job, request.lease, self._worker):
                raise StaleLease(f"lease {request.lease} of job {request.job} is not current")
            body = await self._REQUESTS[request.kind](self, request)
        except (KeyError, TypeError, ValueError) as error:
            message = f"cannot answer a request of kind {request.kind!r}: {error!r}"
            return protocol.Reply(request.id, request.job, request.lease, error=message)
        except StaleLease as stale:
            return protocol.Fenced(request.job, request.lease, str(stale), stale.code)
        except FarhandError as error:
            return protocol.Reply(request.id, request.job, request.lease, error=str(error), code=error.code)
        return protocol.Reply(request.id, request.job, request.lease, body=body)

    async def _checkpoints(self, request: protocol.Request) -> dict[str, Any]:
        return await self._reports.kept(request.job, int(request.args["after"]))

    async def _secret(self, request: protocol.Request) -> dict[str, Any]:
        name = str(request.args["name"])
        return await self._needs.secret(self._worker, request.job, request.lease, name)

    async def _service(self, request: protocol.Request) -> dict[str, Any]:
        return await self._needs.service(str(request.args["name"]), _wait_s(request))

    async def _laid(self, request: protocol.Request) -> dict[str, Any]:
        return await self._needs.laid(self._worker, request.args)

    async def _stream(self, request: protocol.Request) -> dict[str, Any]:
        return await self._needs.stream(request.job, request.args, _wait_s(request))

    async def _variable(self, request: protocol.Request) -> dict[str, Any]:
        return await self._needs.variable(str(request.args["name"]))

    _REQUESTS: ClassVar[dict[str, Callable[[Requests, protocol.Request], Awaitable[dict[str, Any]]]]] = {
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
