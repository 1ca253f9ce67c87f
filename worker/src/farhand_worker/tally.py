"""What this worker has done since it started, by flow; and the last things it said."""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Deque, List, NamedTuple, Sequence

from .speaking import Line

FLOWS_MAX = 500
MESSAGES_MAX = 50

COMPLETED, FAILED, OTHER = "completed", "failed", "other"
_OTHERS = frozenset({"cancelled", "stopped", "lease", "handoff"})
"""Ends that say nothing against the flow."""


@dataclass
class FlowTally:
    """The jobs of one flow that ended here. ``last``, ``message``, ``at`` are of the latest of them."""

    flow: str
    completed: int = 0
    failed: int = 0
    other: int = 0
    last: str = ""
    message: str = ""
    at: float = 0.0

    @property
    def jobs(self) -> int:
        """How many have ended."""
        return self.completed + self.failed + self.other


class Tallies:
    """One `FlowTally` a flow, the longest silent one forgotten first."""

    def __init__(self) -> None:
        self._flows: OrderedDict[str, FlowTally] = OrderedDict()
        self.total = FlowTally("")

    def ended(self, flow: str, end: str, message: str, at: float) -> None:
        """A job of ``flow`` ended as ``end``: the state of a result, or why there was none."""
        found = self._flows.setdefault(flow, FlowTally(flow))
        self._flows.move_to_end(flow)
        for tally in (found, self.total):
            kind = COMPLETED if end == "completed" else OTHER if end in _OTHERS else FAILED
            setattr(tally, kind, getattr(tally, kind) + 1)
            tally.last, tally.message, tally.at = end, message, at
        while len(self._flows) > FLOWS_MAX:
            self._flows.popitem(last=False)

    def flows(self) -> List[FlowTally]:
        """Those whose last job failed first, then those with failures, each the latest first."""
        order = sorted(self._flows.values(), key=lambda tally: -tally.at)
        return sorted(order, key=lambda tally: (not fails(tally), not tally.failed))


def fails(tally: FlowTally) -> bool:
    """Whether the flow's last job here failed."""
    return bool(tally.jobs) and tally.last != "completed" and tally.last not in _OTHERS


class Message(NamedTuple):
    """One line this worker has said."""

    at: float
    level: str
    text: str


class RecentMessages(logging.Handler):
    """Keeps the last lines of a log."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: Deque[Message] = deque(maxlen=MESSAGES_MAX)

    def say(self, lines: Sequence[Line]) -> None:
        """Keep lines that need no record."""
        self.messages.extend(Message(line.at, "info", line.text) for line in lines)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self.messages.append(Message(record.created, record.levelname.lower(), record.getMessage()))
