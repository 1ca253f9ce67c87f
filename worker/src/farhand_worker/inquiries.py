"""What the agent itself asks of the server for a job, over the session; a later one may bring the answer."""

from __future__ import annotations

import asyncio
from typing import Any, Callable, Dict, Tuple

from .protocol import Reply, Request
from .transfer import Claim, TransferFailed

_MARK = "agent-"
"""The ids of engines' requests are numbers; each request of the agent's own begins with this."""


class NotAnswered(TransferFailed):
    """The server's refusal of what was asked, with its ``code``; or there is nobody to answer any more."""

    def __init__(self, message: str, final: bool, code: str = "") -> None:
        super().__init__(message, final)
        self.code = code


class Inquiries:
    """The open questions. ``send`` says a message where there is a session; else `ask_again` will."""

    def __init__(self, send: Callable[[Request], None]) -> None:
        self._send = send
        self._number = 0
        self._open: Dict[str, Tuple[Request, asyncio.Future[Dict[str, Any]]]] = {}

    async def ask(self, claim: Claim, kind: str, args: Dict[str, Any]) -> Dict[str, Any]:
        """The body of the server's reply. Raises `NotAnswered`."""
        self._number += 1
        request = Request(f"{_MARK}{self._number}", claim.job, claim.lease, kind, args)
        answer: asyncio.Future[Dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._open[request.id] = request, answer
        self._send(request)
        try:
            return await answer
        finally:
            self._open.pop(request.id, None)

    def answered(self, message: Reply) -> bool:
        """Whether this answers a question of the agent's own, which then goes on."""
        if not message.id.startswith(_MARK):
            return False
        asked = self._open.get(message.id)
        if asked is None or asked[1].done():
            return True  # it was asked twice, by two sessions
        if message.error is None:
            asked[1].set_result(message.body or {})
        else:
            asked[1].set_exception(NotAnswered(message.error, False, message.code or ""))
        return True

    def ask_again(self) -> None:
        """A new session: what the last one left open is asked by this one."""
        for request, _ in self._open.values():
            self._send(request)

    def forget(self, claim: Claim) -> None:
        """The job of this claim is not ours any more: nobody will answer."""
        for request, answer in self._open.values():
            if (request.job, request.lease) == claim and not answer.done():
                answer.set_exception(NotAnswered("the job is not ours any more", True))
