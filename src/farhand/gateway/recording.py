"""What one worker reports: given to the store's writer in the order of its frames, and answered for.

What comes in one frame is recorded in one transaction and acknowledged after it. What is refused together is
recorded each on its own, so that one report that is late keeps no other back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

from farhand_worker import protocol

from ..engine.reports import Recording, Reports
from ..engine.turn import Turn
from ..errors import FarhandError, StaleLease

log = logging.getLogger("farhand")

_UNHURRIED = (protocol.Call, protocol.Result)
"""Kinds of which a job does not wait to hear that they are recorded."""


class Peer(Protocol):
    """Who reports, as far as it hears of what came of that."""

    def send(self, message: Any) -> None:
        """Send ``message``."""
        ...

    def send_later(self, message: Any) -> None:
        """Send ``message``, which nobody waits for, with what is sent next."""
        ...

    def violated(self, what: str) -> None:
        """It broke the protocol: end its session and say so."""
        ...

    def fail(self, reason: str) -> None:
        """The server could not do its part: end the session, to be begun again."""
        ...


class Recorder:
    """Records the reports of one session."""

    def __init__(self, reports: Reports, worker: str, turn: Turn, peer: Peer) -> None:
        self._reports = reports
        self._worker = worker
        self._turn = turn
        self._peer = peer
        self._open = 0
        self._submitted = self._once_more_from = 0
        """How often reports were given to the writer, and when those of the last refused frame were again."""
        self._all_recorded = asyncio.Event()
        self._all_recorded.set()

    def record(self, events: list[protocol.Event]) -> None:
        """Record what came in one frame; the writer has it when this returns."""
        held = events if len(events) == 1 else self._held(events)
        if held:
            self._record(held)

    async def until_recorded(self) -> None:
        """Wait until all of it is recorded, or refused."""
        await self._all_recorded.wait()

    def _held(self, events: list[protocol.Event]) -> list[protocol.Event]:
        """Those that are not refused for their lease; the others are recorded each on its own, as what is
        refused together is. Those would come late: the next frame may have ended their attempts by then."""
        held = [event for event in events if self._reports.is_held(event, self._worker)]
        if len(held) < len(events):
            for event in events:
                if not self._reports.is_held(event, self._worker):
                    self._record([event])
        return held

    def _record(self, events: list[protocol.Event]) -> None:
        answer = self._reports.record_all(events, self._worker)
        self._open += 1
        self._submitted += 1
        self._all_recorded.clear()
        answer.follow(partial(self._recorded, events, self._submitted))

    def _recorded(self, events: list[protocol.Event], number: int, answer: Recording) -> None:
        """Acknowledge what is recorded; what is refused together is recorded each on its own.

        What was with the writer before that, and what it follows on only after it, is recorded once more.
        """
        try:
            seqs = answer.result()
        except Exception as error:  # noqa: BLE001 whatever it was, the worker waits for an answer
            if len(events) > 1:
                self._record_each(events, error)
            elif isinstance(error, protocol.ProtocolViolation) and number < self._once_more_from:
                self._record(events)
            else:
                self._refuse(events[0], error)
            self._note_end()
        else:
            self._turn.afterwards(partial(self._acknowledge_all, events, seqs))

    def _acknowledge_all(self, events: list[protocol.Event], seqs: Sequence[int]) -> None:
        try:
            for event, seq in zip(events, seqs, strict=True):
                self._acknowledge(event, seq)
        finally:
            self._note_end()

    def _note_end(self) -> None:
        self._open -= 1
        if not self._open:
            self._all_recorded.set()

    def _acknowledge(self, event: protocol.Event, seq: int) -> None:
        """Say that it is recorded; later, where the job waits for something else, or for nothing any more."""
        ack = protocol.Ack(job=event.job, lease=event.lease, source=event.source, seq=seq)
        if isinstance(event.events[-1], _UNHURRIED):
            self._peer.send_later(ack)
        else:
            self._peer.send(ack)

    def _record_each(self, events: list[protocol.Event], error: Exception) -> None:
        if isinstance(error, FarhandError | protocol.ProtocolViolation):
            log.debug("%d reports are recorded one by one: %s", len(events), error)
        else:
            log.error("%d reports could not be stored together", len(events), exc_info=error)
        self._once_more_from = self._submitted + 1
        for event in events:
            self._record([event])

    def _refuse(self, event: protocol.Event, error: Exception) -> None:
        """Say why a report is not recorded."""
        if isinstance(error, StaleLease):
            self._peer.send(protocol.Fenced(event.job, event.lease, str(error), error.code))
        elif isinstance(error, protocol.ProtocolViolation):
            self._peer.violated(str(error))
        elif isinstance(error, FarhandError):
            log.error("a report of job %s could not be stored: %s", event.job, error)
            self._peer.fail("the store could not commit; send it again")
        else:
            log.error("a report of job %s could not be stored", event.job, exc_info=error)
            self._peer.fail("the report could not be stored; send it again")
