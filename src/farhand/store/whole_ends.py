"""Attempts that a report tells whole, from their start to their result: what is written of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import IllegalTransition
from ..lifecycle import JOB, advance
from .guard import Connection

ATTEMPT = (
    "UPDATE attempts SET started_at = ?, host = ?, python = ?, pid = ?, environment = ?,"
    " ended_at = ?, outcome = ?, reason = ?, message = ?, whole = ? WHERE lease = ?"
)


def attempt_row(lease: int, events: Sequence[Any], at: float) -> tuple[Any, ...]:
    """The values of `ATTEMPT`. How many events there are is what is kept of the spool being recorded."""
    start, end = events[0], events[-1]
    return (
        start.at, start.host, start.python, start.pid, start.environment,
        at, end.state, end.reason or end.state, end.message, len(events), lease,
    )  # fmt: skip


class WholeEnds:
    """Attempts and jobs that have ended, written together."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._attempts: list[tuple[Any, ...]] = []
        self._jobs: list[tuple[Any, ...]] = []

    def add(self, job: str, lease: int, events: Sequence[Any]) -> float:
        """One has ended, as its `Started` and its `Result` say; when, which is not before it began."""
        start, end = events[0], events[-1]
        at = max(end.at, start.at)
        self._attempts.append(attempt_row(lease, events, at))
        self._jobs.append((start.at, job, lease))
        return float(at)

    def flush(self) -> bool:
        """Write what has gathered; whether there was anything. Raises `IllegalTransition`."""
        if not self._jobs:
            return False
        advance(JOB, advance(JOB, "leased", "running"), "ended")
        self._connection.executemany(ATTEMPT, self._attempts)
        ended = self._connection.executemany(
            "UPDATE jobs SET state = 'ended', started_at = ?, lease = NULL, worker = NULL"
            " WHERE id = ? AND state = 'leased' AND lease = ?",
            self._jobs,
        )
        if ended.rowcount != len(self._jobs):
            raise IllegalTransition("jobs that have ended are no longer as they were read")
        self._attempts, self._jobs = [], []
        return True
