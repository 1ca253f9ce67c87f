"""Runs of flows that are called inside of runs.

They have no job: such a flow goes on in the engine of whoever called it, and what it does is recorded under
the run that has the job (or the journal), its *root*, by the key of its call. So checkpoints, numbers and
leases know nothing of it; its own record says who called it with what, how it stands and how it ended. One
that asks for a machine is a placed call, and its record moves with that job.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from farhand_worker.protocol import Call, Checkpoint, ProtocolViolation, TaskBegan

from ..lifecycle import RUN, is_terminal, may_advance
from ..model import NAME_PATTERN, Hook, Job, Json, Run
from ..sdk.ids import new_id
from .changes import Effects
from .guard import Connection
from .leases import among_held
from .moves import load_run, move_run, note_run
from .rows import RUNS, to_json

_ID = re.compile(r"[a-z0-9]{8,64}")
OPEN_MAX = 1000
_ENDS = {"completed": "completed", "failed": "failed", "cancelled": "cancelled", "crashed": "crashed"}


CALLER_ENDED = "caller_ended"
"""The reason of a run that ended because what had called it did."""


def cancelled_with(root: str) -> str:
    """The message of a run that was cancelled with its root."""
    return f"run {root}, which had called it, was cancelled"


@dataclass(frozen=True)
class _Called:
    """What an engine says of a flow that it calls."""

    id: str
    name: str
    entry: str
    params: dict[str, Any]
    run_name: str = ""
    hooks: tuple[Hook, ...] = ()
    secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """Where what belongs to a run is found: under ``root``; all of it, or that of the calls ``keys``."""

    root: str
    keys: tuple[str, ...] | None = field(default=None)


def begin(
    connection: Connection,
    effects: Effects,
    root_id: str,
    event: TaskBegan | Call,
    now: float,
    *,
    job: Job | None = None,
    queued: bool = False,
) -> Run:
    """The run of a called flow: running, or queued if it is placed; an earlier attempt may have begun it."""
    called = _called(event.flow)
    known = _open_run(connection, root_id, event.key)
    if known is not None:
        return known if queued else _running(connection, effects, known, job, now)
    root = load_run(connection, root_id)
    caller = root if event.nested is None else (_open_run(connection, root_id, event.nested) or root)
    run = replace(
        root,
        id=_free(connection, called.id, now),
        flow=called.name,
        name=called.run_name,
        state="queued" if queued else "running",
        reason="called",
        message=f"called by {caller.name or caller.flow}",
        params=to_json(called.params),
        created_at=event.at,
        started_at=None if queued else event.at,
        ended_at=None,
        worker=None if queued or job is None else job.worker,
        attempt=0 if queued else 1,
        parent=caller.id,
        root=root.id,
        key=event.key,
        called={"entry": called.entry, "hooks": called.hooks, "secrets": called.secrets},
        result=None,
        error=None,
        progress=None,
        idempotency_key=None,
        schedule=None,
        scheduled_for=None,
        retry_of=None,
        sweep=None,
    )
    connection.execute(RUNS.insert, RUNS.dump(run))
    note_run(connection, run, now, {"parent": caller.id})
    effects.runs[run.id] = run
    return run


def _called(given: Json | None) -> _Called:
    try:
        called = msgspec.convert(given, _Called, strict=False)
    except msgspec.ValidationError as error:
        raise ProtocolViolation(f"not a flow that can be called: {error}") from error
    if not _ID.fullmatch(called.id) or not re.fullmatch(NAME_PATTERN, called.name):
        raise ProtocolViolation(f"not a flow that can be called: {called.name!r} as {called.id!r}")
    return called


def _open_run(connection: Connection, root: str, key: str) -> Run | None:
    """The run of the call that has not ended; there is one at most."""
    row = connection.execute(
        f"SELECT {RUNS.columns} FROM runs WHERE root = ? AND key = ? AND ended_at IS NULL", (root, key)
    ).fetchone()
    return None if row is None else RUNS.load(row)


def _free(connection: Connection, wanted: str, now: float) -> str:
    """The id that an engine proposes; another when a run that has ended has it already."""
    taken = connection.execute("SELECT 1 FROM runs WHERE id = ?", (wanted,)).fetchone()
    return new_id(now) if taken is not None else wanted


def _running(connection: Connection, effects: Effects, run: Run, job: Job | None, now: float) -> Run:
    if run.state == "queued":
        run = move_run(connection, effects, run, "starting", "called", run.message, now)
    if run.state == "starting":
        started_at = now if run.started_at is None else run.started_at
        worker = None if job is None else job.worker
        run = move_run(
            connection, effects, run, "running", "called", run.message, now,
            started_at=started_at, worker=worker, attempt=run.attempt + 1,
        )  # fmt: skip
    return run


def end(
    connection: Connection, effects: Effects, root: str, event: Checkpoint, now: float, job: Job | None
) -> Run | None:
    """The run of a called flow as the end of its call leaves it; None when it has ended already."""
    run = _open_run(connection, root, event.key)
    if run is None or event.state not in _ENDS:
        return None
    said = event.flow or {}
    reason, message = str(said.get("reason") or event.state), str(said.get("message") or "")
    if event.state == "cancelled" and job is not None and job.cancelling:
        reason, message = CALLER_ENDED, cancelled_with(root)
    return _move(
        connection, effects, run, event.state, reason, message, now,
        ended_at=event.ended_at, result=event.value, error=event.error,
    )  # fmt: skip


def _move(
    connection: Connection,
    effects: Effects,
    run: Run,
    to: str,
    reason: str,
    message: str,
    now: float,
    **columns: Any,
) -> Run:
    """To an end by the moves there are: what waits for a later attempt has to run, or be cancelled."""
    if not may_advance(RUN, run.state, to):
        run = _running(connection, effects, run, None, now)
    return move_run(connection, effects, run, to, reason, message, now, **columns)


# ---------------------------------------------------------------- with the job


def follow(
    connection: Connection, effects: Effects, job: Job, to: str, now: float, **columns: Any
) -> Run | None:
    """Move the run of a placed flow with its job; None for any other call, or when it has ended."""
    run = placed_run(connection, job)
    if run is None or is_terminal(RUN, run.state) or run.state == to:
        return None
    reason, message = columns.pop("reason", to), columns.pop("message", run.message)
    return _move(connection, effects, run, to, reason, message, now, **columns)


def placed_run(connection: Connection, job: Job) -> Run | None:
    """The run of the flow that is this placed call."""
    if job.kind != "call" or job.nested is None or job.nested.get("key") != job.key:
        return None
    return load_run(connection, str(job.nested["id"]))


def around(connection: Connection, root: str, key: str | None) -> Json | None:
    """What a job has to know of the flow it belongs to, by the key of that flow's call."""
    if key is None:
        return None
    run = _open_run(connection, root, key)
    return None if run is None else described(run)


def described(run: Run) -> Json:
    """A called flow as `Assign` names it."""
    return {"key": run.key, "flow": run.flow, "id": run.id}


def wait(connection: Connection, effects: Effects, job: Job, reason: str, message: str, now: float) -> None:
    """The attempt that had these runs is over and another will come: they wait for it."""
    for run, holder, placed in _open_runs(connection, job.run):
        if holder == job.id and placed is None and run.state == "running":
            move_run(connection, effects, run, "queued", reason, message, now, worker=None, progress=None)


def close(
    connection: Connection,
    effects: Effects,
    root: str,
    state: str,
    message: str,
    now: float,
    at: float,
    job: str | None = None,
) -> list[Run]:
    """End what a root (or one job of it) left open, but for what is in the hands of an engine still."""
    found = _open_runs(connection, root)
    if not found:
        return []
    sql = among_held("SELECT id FROM jobs {} WHERE run = ? AND state IN ('leased', 'running')")
    live = {row[0] for row in connection.execute(sql, (root,)).fetchall()}
    ended: list[Run] = []
    for run, holder, placed in found:
        if (placed or holder) not in live and job in (None, holder):
            to = "cancelled" if run.state == "queued" else state
            ended.append(move_run(connection, effects, run, to, CALLER_ENDED, message, now, ended_at=at))
    return ended


def _open_runs(connection: Connection, root: str) -> list[tuple[Run, str | None, str | None]]:
    """The runs below a root that have not ended, with the job whose engine called each, and its own job."""
    columns = ", ".join(f"r.{name}" for name in RUNS.columns.split(", "))
    rows = connection.execute(
        f"SELECT {columns}, t.job, t.placed FROM runs r"
        " LEFT JOIN task_runs t ON t.run = r.root AND t.key = r.key"
        " WHERE r.root = ? AND r.ended_at IS NULL ORDER BY r.id",
        (root,),
    ).fetchall()
    return [(RUNS.load(row[:-2]), row[-2], row[-1]) for row in rows]


# ---------------------------------------------------------------- what belongs to one


def open_ids(connection: Connection, root: str) -> list[str]:
    """The runs below a root that go on."""
    sql = "SELECT id FROM runs WHERE root = ? AND ended_at IS NULL"
    return [row[0] for row in connection.execute(sql, (root,)).fetchall()]


def open_keys(connection: Connection, root: str) -> dict[str, str]:
    """Their ids by the keys of their calls; an attempt has no more of them than it has threads."""
    sql = "SELECT key, id FROM runs WHERE root = ? AND ended_at IS NULL ORDER BY id LIMIT ?"
    return dict(connection.execute(sql, (root, OPEN_MAX)).fetchall())


def part_of(connection: Connection, run_id: str) -> Part:
    """Where what belongs to a run is found: that of a called flow under its root, with all that it called."""
    row = connection.execute("SELECT root, key FROM runs WHERE id = ?", (run_id,)).fetchone()
    if row is None or row[0] is None:
        return Part(run_id)
    below: dict[str, list[tuple[str, str]]] = {}
    for id, parent, key in connection.execute(
        "SELECT id, parent, key FROM runs WHERE root = ?", (row[0],)
    ).fetchall():
        below.setdefault(parent, []).append((id, key))
    keys, waiting = [row[1]], [run_id]
    while waiting:
        for id, key in below.get(waiting.pop(), []):
            keys.append(key)
            waiting.append(id)
    return Part(row[0], tuple(keys))
