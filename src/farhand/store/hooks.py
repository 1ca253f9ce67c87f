"""Hooks: what a flow has called when a run has ended, as jobs of the run's own.

They are queued in the transaction that records the end, which happens once; so each is queued once. A hook
is not retried, and an engine that dies in one is not replaced: what it did before is not done twice.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from ..model import Ask, Hook, Job, JobSettings, Json, Run, TaskRun
from .changes import Effects
from .guard import Connection
from .rows import JOBS, TASK_RUNS
from .tasks import next_number

HOOK = "hook"
"""The kind of their jobs."""

TIMEOUT_S = 600.0
"""How long one may take."""

_RESULT_CHARS_MAX = 16 * 1024


@dataclass(frozen=True, slots=True)
class _Owner:
    """The flow that hooks belong to, and the run whose jobs they are."""

    run: str
    entry: str
    secrets: tuple[str, ...]
    job: Job
    before_key: str = ""
    nested: Json | None = None


def queue_hooks(connection: Connection, effects: Effects, run: Run, job: Job, now: float) -> None:
    """Queue what the flow wants called at this end of ``run``, whose own job is ``job``."""
    owner = _Owner(run.id, job.entry, job.settings.secrets, job)
    _queue_all(connection, effects, run, owner, job.settings.hooks, now)


def queue_hooks_of_called(
    connection: Connection, effects: Effects, run: Run, job: Job | None, now: float
) -> None:
    """The same for the run of a flow that ``job`` had called; a script, which has none, calls its own."""
    if run.called is None or run.root is None or job is None:
        return
    called = msgspec.convert(run.called, _Called, strict=False)
    nested = {"key": run.key, "flow": run.flow, "id": run.id}
    owner = _Owner(run.root, called.entry, called.secrets, job, f"{run.id}/", nested)
    _queue_all(connection, effects, run, owner, called.hooks, now)


@dataclass(frozen=True)
class _Called:
    entry: str
    hooks: tuple[Hook, ...] = ()
    secrets: tuple[str, ...] = ()


def _queue_all(
    connection: Connection,
    effects: Effects,
    run: Run,
    owner: _Owner,
    hooks: tuple[Hook, ...],
    now: float,
) -> None:
    for hook in hooks:
        if hook.state == run.state:
            _queue(connection, effects, run, owner, hook, now)


def _queue(connection: Connection, effects: Effects, run: Run, owner: _Owner, hook: Hook, now: float) -> None:
    number = next_number(connection, owner.run)
    key = f"{owner.before_key}{HOOK}:{hook.state}:{hook.index}"
    name = f"on_{hook.state}: {hook.name}"
    called = Job(
        id=f"{owner.run}.{number}",
        run=owner.run,
        kind=HOOK,
        state="queued",
        flow=run.flow,
        entry=owner.entry,
        args={"enc": "json", "text": summary_text(run)},
        bundle=run.bundle,
        ask=Ask(),
        settings=JobSettings(crash_retries=0, timeout_s=TIMEOUT_S, secrets=owner.secrets),
        age_at=now,
        created_at=now,
        queued_at=now,
        key=key,
        name=name,
        priority=owner.job.priority,
        fingerprint=owner.job.fingerprint,
        git=owner.job.git,
        nested=owner.nested,
    )
    task = TaskRun(owner.run, key, number, name, "queued", job=owner.job.id, placed=called.id)
    if owner.nested is not None:
        task = replace(task, nested=run.key)
    connection.execute(JOBS.insert, JOBS.dump(called))
    connection.execute(TASK_RUNS.insert, TASK_RUNS.dump(task))
    effects.enqueued[called.id] = called
    effects.streams.add(owner.run)


def summary_text(run: Run) -> str:
    """A run that has ended as JSON text, for a hook: its fields, and the values of params and result.

    A result that is large or no JSON is left out; so is the pickle of an error.
    """
    error = run.error or {}
    fields: Json = {
        "id": run.id,
        "flow": run.flow,
        "project": run.project,
        "state": run.state,
        "reason": run.reason,
        "message": run.message,
        "worker": run.worker,
        "attempt": run.attempt,
        "created_at": run.created_at,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "error": {name: error.get(name, "") for name in ("type", "message", "traceback")} if error else None,
    }
    head = json.dumps(fields, separators=(",", ":"))
    return f'{head[:-1]},"params":{run.params},"result":{_result_text(run.result)}}}'


def _result_text(result: Any) -> str:
    if not result or result.get("enc") != "json" or len(result.get("text", "")) > _RESULT_CHARS_MAX:
        return "null"
    return result.get("text") or "null"
