"""Attempts that a report tells whole, from their start to their result: what is written of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..errors import IllegalTransition
from ..lifecycle import JOB, advance
from .guard import Connection

_KNOWN = ("number", "overlap_possible", "lease", "job", "run", "worker", "leased_at", "fingerprint", "git")
_TOLD = (
    "started_at", "host", "python", "pid", "environment",
    "ended_at", "outcome", "reason", "message", "whole",
)  # fmt: skip
ATTEMPT = (
    f"INSERT INTO attempts ({', '.join(_KNOWN + _TOLD)}) VALUES (1, 0{', ?' * (len(_KNOWN + _TOLD) - 2)})"
    f" ON CONFLICT (lease) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _TOLD)}"
)
"""Write the first attempt of a job, of which something may have been written already."""


class Handed(NamedTuple):
    """What a job has of its attempt, but for its number, which is 1."""

    lease: int
    job: str
    run: str
    worker: str
    leased_at: float
    fingerprint: str
    git: str


_CODE = "{0}leased_at, {0}fingerprint, CASE WHEN {0}checkout = '' THEN {0}git ELSE {0}checkout END"
CODE = _CODE.format("")
HANDED = f"j.lease, j.id, j.run, j.worker, {_CODE.format('j.')}"
"""The columns of a job that a `Handed` is of."""


def attempt_row(handed: Handed, events: Sequence[Any], at: float) -> tuple[Any, ...]:
    """The values of `ATTEMPT`. How many events there are is what is kept of the spool being recorded."""
    start, end = events[0], events[-1]
    return (
        *handed, start.at, start.host, start.python, start.pid, start.environment,
        at, end.state, end.reason or end.state, end.message, len(events),
    )  # fmt: skip


class WholeEnds:
    """Attempts and jobs that have ended, written together."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._attempts: list[tuple[Any, ...]] = []
        self._jobs: list[tuple[Any, ...]] = []

    def add(self, handed: Handed, events: Sequence[Any]) -> float:
        """One has ended, as its `Started` and its `Result` say; when, which is not before it began."""
        start, end = events[0], events[-1]
        at = max(end.at, start.at)
        self._attempts.append(attempt_row(handed, events, at))
        self._jobs.append((start.at, handed.job, handed.lease))
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
