"""What the events of a report change. Each is handled by the one function that `_HANDLERS` has for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from farhand_worker.protocol import (
    Blocked,
    Call,
    Checkpoint,
    Exit,
    LocalPath,
    ProtocolViolation,
    Result,
    ServiceState,
    Started,
    TaskBegan,
    Unblocked,
)

from ..lifecycle import JOB, RETURNED, Ending, advance
from ..model import SERVICE, Job, TaskRun
from . import nested, service_jobs
from .attempts import change_attempt
from .batch import STREAMED, STREAMING, Batch, ending_of, unexpected
from .calls import place_call, placed_before
from .changes import Effects, Unfit
from .endings import End, end_attempt
from .guard import Connection
from .moves import (
    Unwritten,
    add_event,
    change_job,
    load_run,
    move_call,
    move_job,
    move_run,
    moved_run,
    noted,
    rename_run,
)
from .placements import Placements
from .rows import JOBS, RUNS, Row
from .run_blobs import digests_of

LOCAL_PATH = "run.local_path_on_worker"
"""The kind of the event that tells of a path which is another file, or none, on other machines."""

_EXITS = {
    "crashed": "engine_died",
    "timeout": "timeout",
    "silence": "silence",
    "cancelled": "cancelled",
    "stopped": "stopped",
    "not_started": "not_started",
    RETURNED: "returned",
}
"""Reasons an agent may give for an engine's end → the reason that is shown."""


class Reported(Batch):
    """A batch from the holder of a lease; ``held`` is the job as the events so far have left it."""

    held: Job
    ended: bool = False
    brief: bool = False  # it holds a start and the end, and nothing that looks at the state between them
    plain: bool = False  # and it is all that there is of the job's first attempt, which called nothing
    start: Unwritten | None = None
    placements: Placements
    placed: dict[str, TaskRun]  # what the store has of the calls that it places
    retrying: bool  # whether its run retries another
    run_row: Row | None = None  # the run as it was before the events, while none of them can have changed it

    def load(self, events: list[Any]) -> None:
        """Read what the store has of the calls these events name."""
        super().load(events)
        keys = [event.key for event in events if type(event) is Call]
        self.placed = {}
        if keys:
            self.look_up(keys)

    def look_up(self, keys: list[str]) -> None:
        """Read what the store has of placed calls, and the number of the last call in it."""
        last, found = placed_before(self.connection, self.run, keys)
        self.placed |= found
        self.tasks.go_on_from(last)

    def flush(self) -> None:
        """Write what has gathered, and the calls that were placed."""
        self.placements.flush()
        super().flush()


def apply_events(
    connection: Connection,
    effects: Effects,
    placements: Placements,
    job: Job,
    run: Row,
    events: list[Any],
    now: float,
) -> None:
    """Have the events change what they change. Calls that they place may be left in ``placements``."""
    batch = Reported(connection, effects, job.run, now, job)
    batch.held = job
    batch.placements = placements
    batch.retrying = run[_RETRY_AT] is not None
    kinds = set(map(type, events))
    brief = type(events[-1]) in _ENDS and kinds <= _BRIEF and not _calls_flows(kinds, events)
    batch.brief = brief and job.kind != SERVICE
    batch.plain = batch.brief and job.attempt == 1 and kinds.isdisjoint(_CALLS)
    batch.run_row = run if type(events[0]) is Started else None
    batch.load(events)
    for event in events:
        if batch.ended:
            raise ProtocolViolation(f"a {event.kind!r} event after the end of job {job.id}")
        handler = _HANDLERS.get(type(event))
        if handler is None:
            raise unexpected(event.kind)
        handler(batch, event)
    Batch.flush(batch)
    if batch.tasks.progressed and not batch.ended:
        _reset_crashes(batch)
    if not kinds.isdisjoint(STREAMED):
        effects.streams.add(job.run)
        if job.kind == SERVICE:
            service_jobs.trim_lines(connection, job)
        if batch.nested or job.nested is not None:
            effects.streams.update(nested.open_ids(connection, job.run))


def _calls_flows(kinds: set[type[Any]], events: list[Any]) -> bool:
    """Whether runs begin among these events, which take after the one that they are reported of."""
    return TaskBegan in kinds and any(type(event) is TaskBegan and event.flow is not None for event in events)


def _reset_crashes(batch: Reported) -> None:
    """A new kept outcome is progress: an engine that dies after it does not die of the same."""
    if not batch.held.crashes:
        return
    if batch.start is not None:
        batch.held = JOBS.changed(batch.held, {"crashes": 0})
    else:
        batch.held = change_job(batch.connection, batch.held, crashes=0)


def _on_started(batch: Reported, event: Started) -> None:
    job = batch.held
    attempt: dict[str, Any] = {
        "started_at": event.at,
        "host": event.host,
        "python": event.python,
        "pid": event.pid,
        "environment": event.environment,
    }
    if job.state == "running" or not batch.brief:
        change_attempt(batch.connection, job, **attempt)
    if job.state == "running":
        _name_run(batch, event.name)
        return
    if batch.brief:
        running = {"state": advance(JOB, job.state, "running"), "started_at": event.at}
        batch.held = JOBS.changed(job, running)
        batch.start = Unwritten(job, attempt)
    else:
        batch.held = move_job(batch.connection, job, "running", started_at=event.at)
    if job.kind == "run":
        _begin_run(batch, event)
        _name_run(batch, event.name)
    elif job.kind == SERVICE:
        service_jobs.started(batch.connection, batch.effects, batch.held, event, batch.now)
    else:
        if batch.start is None:
            move_call(batch.connection, job, "running", started_at=event.at)
        nested.follow(
            batch.connection, batch.effects, job, "running", batch.now,
            reason="started", message=f"running on {job.worker}", started_at=event.at, host=event.host,
        )  # fmt: skip
        batch.effects.streams.add(job.run)


def _begin_run(batch: Reported, event: Started) -> None:
    """The run is running; written at once, unless its end is written in a moment."""
    connection, row = batch.connection, batch.run_row
    run = load_run(connection, batch.held.run) if row is None else RUNS.load(row)
    batch.run_row = None
    if run.state != "starting":
        return
    message = f"running on {batch.held.worker}"
    columns: dict[str, Any] = {"started_at": run.started_at or event.at, "host": event.host}
    if batch.start is None:
        move_run(connection, batch.effects, run, "running", "started", message, batch.now, **columns)
    else:
        moved = moved_run(run, "running", "started", message, **columns)
        batch.start = replace(batch.start, run=moved, run_in_store=run, note=noted(moved, batch.now))


def _name_run(batch: Reported, name: str | None) -> None:
    """The run's name, once its parameters are known; a later attempt says the same again."""
    if name is None or batch.held.kind != "run":
        return
    if batch.start is not None and batch.start.run is not None:
        batch.start = replace(batch.start, run=replace(batch.start.run, name=name))
        return
    run = load_run(batch.connection, batch.run)
    if run.name != name:
        batch.effects.runs[run.id] = rename_run(batch.connection, run, name)


def _on_service(batch: Reported, event: ServiceState) -> None:
    service_jobs.note_state(batch.connection, batch.effects, batch.held, event, batch.now)


def _on_call(batch: Reported, event: Call) -> None:
    if batch.tasks.gathered:  # they have their numbers first, and one may be of this very key
        batch.flush()
        batch.look_up([event.key])
    place_call(batch, batch.placements, batch.held, event, batch.placed, batch.retrying)


def _on_blocked(batch: Reported, event: Blocked) -> None:
    """It waits for placed calls alone: slot and cores are free for others."""
    if batch.held.state == "running":
        _block(batch, "blocked", event.n)


def _on_unblocked(batch: Reported, event: Unblocked) -> None:
    """It would go on, and takes a slot before anything that is queued."""
    if batch.held.blocked == "blocked" and batch.held.block == event.n:
        _block(batch, "unblocked", event.n)


def _block(batch: Reported, blocked: str, number: int) -> None:
    batch.flush()
    batch.held = change_job(batch.connection, batch.held, blocked=blocked, block=number)
    batch.effects.blocked[batch.held.id] = batch.held
    batch.effects.streams.add(batch.held.run)


def _on_local_path(batch: Reported, event: LocalPath) -> None:
    """A path that means a file on one machine came to a worker, or from it: told once a path."""
    message = f"{event.path} was used on {batch.held.worker}, which shares no such path with the server"
    if batch.connection.execute(
        "SELECT 1 FROM events WHERE run = ? AND kind = ? AND message = ?", (batch.run, LOCAL_PATH, message)
    ).fetchone():
        return
    add_event(
        batch.connection, event.at, LOCAL_PATH, message, batch.run, batch.held.worker, {"path": event.path}
    )
    batch.effects.streams.add(batch.run)


def _on_result(batch: Reported, event: Result) -> None:
    if event.state == "unfit":
        job = batch.held
        batch.effects.unfit.append(Unfit(job, job.worker or "", event.reason, event.message, event.error))
    batch.blobs |= digests_of(event.value)
    alone = _is_alone(batch)
    _end(batch, End(ending_of(event), event.at, event.value, event.error, batch.start, alone))


def _is_alone(batch: Reported) -> bool:
    """Whether nothing can be under way that the job had called: it began in this very batch, and called
    nothing. A run that retries another has taken over what that had called."""
    start = batch.start
    if start is None or not batch.plain:
        return False
    return batch.held.kind == "call" or (start.run is not None and start.run.retry_of is None)


def _on_exit(batch: Reported, event: Exit) -> None:
    if event.reason not in _EXITS:
        raise ProtocolViolation(f"an engine cannot have ended for {event.reason!r}")
    if event.reason == RETURNED and batch.held.state == "running":
        raise ProtocolViolation(f"job {batch.held.id} was given back, though it had begun")
    is_service = batch.held.kind == SERVICE
    if is_service or event.code is not None or event.signal is not None:  # the log's last line says how
        if batch.label is not None:
            batch.turn_to(None)
        said = event.message if is_service else f"the engine ended: {event.message}"
        batch.lines.append((event.at, said, "log", "error", batch.held.key or None))
        batch.effects.streams.add(batch.run)
    ending = Ending(event.reason, _EXITS[event.reason], event.message)
    _end(batch, End(ending, event.at, start=batch.start, tail=event.tail))


def _end(batch: Reported, end: End) -> None:
    batch.flush()
    if batch.tasks.progressed:
        _reset_crashes(batch)
    end_attempt(batch.connection, batch.effects, batch.held, end, batch.now)
    batch.ended = True


_ENDS = frozenset({Result, Exit})
_CALLS = frozenset({TaskBegan, Checkpoint})
_RETRY_AT = RUNS.columns.split(", ").index("retry_of")
_BRIEF = STREAMED | _ENDS | {Started}

_HANDLERS: Mapping[type[Any], Callable[[Any, Any], None]] = {
    **STREAMING,
    Started: _on_started,
    Call: _on_call,
    ServiceState: _on_service,
    Blocked: _on_blocked,
    Unblocked: _on_unblocked,
    LocalPath: _on_local_path,
    Result: _on_result,
    Exit: _on_exit,
}
