"""One batch of reports under way: what jobs and scripts report alike, gathered and written in bulk."""

from __future__ import annotations

from typing import Any

from farhand_worker.protocol import (
    Artifact,
    Checkpoint,
    Log,
    Metric,
    Progress,
    ProtocolViolation,
    Result,
    TaskBegan,
    Yielded,
)

from ..lifecycle import Ending
from ..model import Job
from . import nested
from .artifacts import add_artifact
from .changes import Effects
from .guard import Connection
from .hooks import queue_hooks_of_called
from .logs import append_lines
from .metrics import append_points
from .progress import note_progress
from .run_blobs import digests_of, name_blobs
from .streams import note_yields
from .tasks import TaskBatch

_OF_CALLS = frozenset({TaskBegan, Checkpoint})


class Batch:
    """The events of one transaction. `flush` writes what the handlers below have gathered."""

    def __init__(
        self, connection: Connection, effects: Effects, run: str, now: float, job: Job | None = None
    ) -> None:
        self.connection = connection
        self.effects = effects
        self.run = run
        self.now = now
        self.job = job
        self.lines: list[tuple[Any, ...]] = []
        self.points: list[tuple[Any, ...]] = []
        self.progress: dict[str | None, Progress] = {}
        self.yields: list[Yielded] = []
        self.label: str | None = None
        self.nested = False  # whether anything came from a flow that was called inside of the run
        self.blobs: set[str] = set()
        self.tasks = TaskBatch(
            connection, run, None if job is None else job.id, None if job is None else job.worker
        )

    def load(self, events: list[Any]) -> None:
        """Read what the store has of the calls these events name."""
        keys = {event.key: None for event in events if type(event) in _OF_CALLS}
        if keys:
            self.tasks.load(list(keys))

    def turn_to(self, label: str | None) -> None:
        """What comes now is from another flow than what came before: its call's key, None for the own."""
        self.flush_streams()
        self.label, self.nested = label, True

    def flush_streams(self) -> None:
        """Write the lines and points that have gathered."""
        attempt = 1 if self.job is None else self.job.attempt
        if self.lines:
            append_lines(self.connection, self.run, attempt, self.lines, self.label)
            self.lines = []
        if self.points:
            append_points(self.connection, self.run, self.points, self.label)
            self.points = []

    def flush(self) -> None:
        """Write what has gathered."""
        self.flush_streams()
        if self.blobs:
            name_blobs(self.connection, self.run, self.blobs)
            self.blobs = set()
        self.tasks.flush()
        self.tasks.forget_number()
        if self.progress:
            note_progress(self.connection, self.run, self.progress)
            self.progress = {}
        if self.yields and self.job is not None:
            note_yields(self.connection, self.job, self.yields)
            self.yields = []


def on_log(batch: Batch, event: Log) -> None:
    """A line of output."""
    if event.nested != batch.label:
        batch.turn_to(event.nested)
    batch.lines.append((event.at, event.text, event.stream, event.level, event.task))


def on_metric(batch: Batch, event: Metric) -> None:
    """A point of one or more series."""
    if event.nested != batch.label:
        batch.turn_to(event.nested)
    batch.points.append((event.at, event.values, event.task))


def on_progress(batch: Batch, event: Progress) -> None:
    """How far the work has come: shown of whoever said it, a point of a series, and a line for a message."""
    if event.nested != batch.label:
        batch.turn_to(event.nested)
    batch.progress[event.task] = event
    batch.points.append((event.at, {"progress": event.done / (event.total or 1.0)}, event.task))
    if event.message:
        batch.lines.append((event.at, event.message, "log", "info", event.task))


def on_yielded(batch: Batch, event: Yielded) -> None:
    """What a node yields, for those who read along."""
    if batch.job is None:
        raise unexpected(event.kind)
    batch.blobs |= digests_of(event.value)
    batch.yields.append(event)


def on_task(batch: Batch, event: TaskBegan) -> None:
    """A call began in the engine."""
    run = None
    if event.flow is not None and batch.tasks.may_begin(event.key):
        batch.nested = True
        run = nested.begin(batch.connection, batch.effects, batch.run, event, batch.now, job=batch.job)
    batch.tasks.began(event, None if run is None else run.id)


def on_checkpoint(batch: Batch, event: Checkpoint) -> None:
    """A call ended in the engine."""
    batch.blobs |= digests_of(event.value)
    batch.tasks.ended(event)
    if event.flow is None:
        return
    batch.nested = True
    batch.flush()  # what it said before its end; and hooks come later than what they are told of
    run = nested.end(batch.connection, batch.effects, batch.run, event, batch.now, batch.job)
    if run is not None and batch.job is not None:
        queue_hooks_of_called(batch.connection, batch.effects, run, batch.job, batch.now)


def on_artifact(batch: Batch, event: Artifact) -> None:
    """A file was saved."""
    batch.blobs.add(event.digest)
    add_artifact(batch.connection, batch.run, event)


STREAMING = {
    Log: on_log,
    Metric: on_metric,
    Progress: on_progress,
    Yielded: on_yielded,
    TaskBegan: on_task,
    Checkpoint: on_checkpoint,
    Artifact: on_artifact,
}
"""Kind → handler of what does not move the run; a table for each source adds what does."""

STREAMED = frozenset(STREAMING)


def ending_of(event: Result) -> Ending:
    """How user code says it ended."""
    if event.state not in ("completed", "failed", "cancelled", "unfit"):
        raise ProtocolViolation(f"a result cannot be {event.state!r}")
    return Ending(event.state, event.reason, event.message, event.retryable)


def unexpected(kind: str) -> ProtocolViolation:
    """The refusal of an event that has no handler here."""
    return ProtocolViolation(f"a {kind!r} event does not belong here")
