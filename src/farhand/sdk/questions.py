"""What a job has asked the server and gets an answer to later: nobody waits on a thread meanwhile."""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, Optional, Set

from .interrupts import uninterrupted, watcher

Answer = Dict[str, Any]
Arrived = Callable[[Answer], None]
RequestLater = Callable[[str, Dict[str, Any], Callable[[Dict[str, Any]], None]], Callable[[], None]]
"""Sends a request and calls back with the header of its reply; returns what takes the callback away."""

REFUSED = "refused"
"""The state in the answer to a question that cannot be answered."""

AGAIN_S = 1.0
"""After this a question is asked again that the server could not answer as it was."""

_TRANSIENT = frozenset(["store_closed", "store_failed"])


class Questions:
    """The open questions of one job. ``deliver`` lets an answer through, once the job may go on."""

    def __init__(
        self, request_later: Optional[RequestLater], deliver: Callable[[Callable[[], None]], None]
    ) -> None:
        self._request_later = request_later
        self._deliver = deliver
        self._lock = threading.Lock()
        self._open: Set[Question] = set()
        self._closed = False

    @property
    def open(self) -> bool:
        """Whether an answer is still to come."""
        return bool(self._open)

    @uninterrupted
    def ask(self, kind: str, args: Dict[str, Any], arrived: Arrived) -> None:
        """Ask until there is an answer, and call ``arrived`` with it."""
        with self._lock:
            if self._closed or self._request_later is None:
                return
            question = Question(kind, args, arrived)
            self._open.add(question)
        self._send(question)

    @uninterrupted
    def close(self) -> None:
        """The job has ended: what is still answered is dropped."""
        with self._lock:
            self._closed = True
            questions, self._open = self._open, set()
        for question in questions:
            question.forget()

    def _send(self, question: Question) -> None:
        assert self._request_later is not None
        question.forget = self._request_later(
            question.kind, question.args, lambda header: self._replied(question, header)
        )

    def _send_if_open(self, question: Question) -> None:
        if question in self._open:
            self._send(question)

    def _replied(self, question: Question, header: Dict[str, Any]) -> None:
        if header.get("code") in _TRANSIENT:
            watcher.after(AGAIN_S, lambda: self._send_if_open(question))
            return
        refused = header.get("error")
        body = header.get("body") or {}
        if refused:
            body = {"state": REFUSED, "message": str(refused)}
        with self._lock:
            if question not in self._open:
                return
            if not body.get("again"):
                self._open.discard(question)
        if body.get("again"):  # the server had nothing to say for as long as it holds a question back
            self._send(question)
        else:
            self._deliver(lambda: question.arrived(body))


class Question:
    """One that is asked until it is answered."""

    def __init__(self, kind: str, args: Dict[str, Any], arrived: Arrived) -> None:
        self.kind = kind
        self.args = args
        self.arrived = arrived
        self.forget: Callable[[], None] = lambda: None
