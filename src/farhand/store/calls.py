"""Placed calls: a job of its own for each call of a run, asked for by the engine that makes the call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import msgspec

from farhand_worker.protocol import Call

from ..errors import Conflict, StaleLease, UnknownFlavor
from ..model import Ask, Job, JobSettings, Json, TaskRun
from . import nested
from .batch import Batch
from .changes import PlacedOutcome
from .closing import call_error
from .flavors import with_flavor
from .guard import Connection, Variants
from .placements import Placements
from .rows import TASK_RUNS, to_json
from .run_blobs import digests_of
from .tasks import outcome_body

_ALIKE_MAX = 256
_encode = msgspec.json.Encoder().encode
_PLACED = (
    f"SELECT latest.number, {TASK_RUNS.of('t')}"
    " FROM (SELECT max(number) AS number FROM task_runs WHERE run = ?) AS latest"
    " LEFT JOIN task_runs AS t ON t.run = ? AND t.key"
)
"""The last number of a run's task runs, and what there is of the calls by some keys."""
_ONE = f"{_PLACED} = ?"
_MORE = Variants(
    sqlite=f"{_PLACED} IN (SELECT value FROM json_each(?))",
    postgresql=f"{_PLACED} IN (SELECT jsonb_array_elements_text(?::jsonb))",
)


def placed_before(connection: Connection, run: str, keys: Sequence[str]) -> tuple[int, dict[str, TaskRun]]:
    """The last number of the run's task runs, and what the store has of calls by these keys."""
    if len(keys) == 1:
        rows = connection.execute(_ONE, (run, run, keys[0])).fetchall()
    else:
        rows = connection.execute(_MORE, (run, run, to_json(keys))).fetchall()
    last = int(rows[0][0] or 0)
    if rows[0][1] is None:  # there is none of them
        return last, {}
    return last, {task.key: task for row in rows for task in [TASK_RUNS.load(row[1:])]}


def place_call(
    batch: Batch,
    placements: Placements,
    job: Job,
    event: Call,
    placed: dict[str, TaskRun],
    retrying: bool,
) -> None:
    """Place a call of ``job``, or find the one that an earlier attempt of it placed, if ``placed`` has it.

    ``retrying``: what is called within it may have been taken over from a run that this one retries.
    Raises `StaleLease` when the job is not running.
    """
    if job.state != "running":
        raise StaleLease(f"job {job.id} is {job.state}, and only a running one places calls")
    batch.effects.streams.add(job.run)
    task = placed.get(event.key)
    if task is not None and task.placed is not None and task.state in ("queued", "running"):
        return  # adopted as it is: open, and its outcome will be sent to this job
    if task is not None and task.state not in ("queued", "running") and task.kept and not task.seeded:
        batch.effects.outcomes.append(PlacedOutcome(job.id, event.key, outcome_body(task)))
        return
    number, again = (batch.tasks.next_number(), "") if task is None else _again(batch.connection, task)
    call, placed[event.key] = _place(batch, job, event, number, again)
    placements.add(call, placed[event.key], retrying)


def _again(connection: Connection, task: TaskRun) -> tuple[int, str]:
    """A call whose outcome is not to be used is placed again: its number, and the end of its job's id.

    Raises `Conflict` while it has a job: there is one for each call.
    """
    earlier = connection.execute(
        "SELECT state FROM jobs WHERE run = ? AND key = ?", (task.run, task.key)
    ).fetchall()
    if any(state != "ended" for (state,) in earlier):
        raise Conflict(f"call {task.key} of run {task.run} has a job that has not ended")
    connection.execute("DELETE FROM task_runs WHERE run = ? AND key = ?", (task.run, task.key))
    return task.number, f".{len(earlier) + 1}" if earlier else ""


def _place(batch: Batch, parent: Job, event: Call, number: int, again: str) -> tuple[Job, TaskRun]:
    """A job for the call, and its task run."""
    call = called_by(parent, event, f"{parent.run}.{number}{again}", batch.now)
    refused = ""
    try:
        asked = with_flavor(batch.connection, call.ask)
        call = call if asked is call.ask else replace(call, ask=asked)
    except UnknownFlavor as error:
        refused = str(error)
    placed = TaskRun(
        parent.run, event.key, number, event.name, "queued", event.scope, event.index,
        job=parent.id, placed=call.id, needs=listed(event.needs), tags=listed(event.tags),
        nested=event.nested,
    )  # fmt: skip
    call, placed = _with_flow(batch, event, call, placed)
    if parent.cancelling:  # its run is being cancelled: the call ends before it begins
        call = replace(call, cancelling=True)
        call, placed = _never_begun(batch, parent, call, placed, "cancelled", call_error("cancelled", ""))
    elif refused:
        error = {"type": "UnknownFlavor", "module": "farhand.errors", "message": refused, "traceback": ""}
        call, placed = _never_begun(batch, parent, call, placed, "failed", error)
    else:
        batch.effects.enqueued[call.id] = call
    batch.blobs |= digests_of(event.args)
    return call, placed


def _with_flow(batch: Batch, event: Call, call: Job, placed: TaskRun) -> tuple[Job, TaskRun]:
    """The job and task run of a call, knowing the flow they are or are within, if it is not the run's."""
    if event.flow is None:
        around = nested.around(batch.connection, batch.run, event.nested)
        return call if around is None else replace(call, nested=around), placed
    run = nested.begin(batch.connection, batch.effects, batch.run, event, batch.now, queued=True)
    return replace(call, nested=nested.described(run)), replace(placed, flow_run=run.id)


def _never_begun(
    batch: Batch, parent: Job, call: Job, placed: TaskRun, state: str, error: Json
) -> tuple[Job, TaskRun]:
    """A call that ends as it is asked for, and is told so."""
    kept = state != "cancelled"
    placed = replace(placed, state=state, ended_at=batch.now, kept=kept, error=error)
    batch.effects.outcomes.append(PlacedOutcome(parent.id, call.key, outcome_body(placed)))
    nested.follow(
        batch.connection, batch.effects, call, state, batch.now,
        message=error["message"], ended_at=batch.now, error=error,
    )  # fmt: skip
    return replace(call, state="ended"), placed


def listed(given: list[str] | None) -> tuple[str, ...] | None:
    """A list that an event may bring, as a record has it."""
    return tuple(given) if given else None


@lru_cache(_ALIKE_MAX)
def _settings(text: bytes) -> JobSettings:
    """Settings of a call; those of many are the same, and are read once."""
    return msgspec.json.decode(text, type=JobSettings, strict=False)


@lru_cache(_ALIKE_MAX)
def _ask(text: bytes, requires_python: str) -> Ask:
    """What a call asks for; that of many is the same, and is read once."""
    return replace(msgspec.json.decode(text, type=Ask), requires_python=requires_python, slots=1)


def called_by(parent: Job, event: Call, job_id: str, now: float) -> Job:
    """The job of a placed call: as old and, unless it says otherwise, as urgent as what waits for it.

    Raises `msgspec.ValidationError` or UnicodeEncodeError where the call asks for what cannot be read.
    """
    settings = _settings(_encode(event.settings))
    return Job(
        id=job_id,
        run=parent.run,
        kind="call",
        state="queued",
        flow=parent.flow,
        entry=event.entry,
        args=event.args,
        bundle=parent.bundle,
        ask=_ask(_encode(event.ask), parent.ask.requires_python),
        settings=settings,
        age_at=parent.age_at,
        created_at=now,
        key=event.key,
        name=event.name,
        priority=parent.priority if settings.priority is None else settings.priority,
        parent_job=parent.id,
        depth=parent.depth + 1,
        queued_at=now,
        fingerprint=parent.fingerprint,
        git=parent.git,
    )
