"""Hooks: what a flow has called when a run has ended, as jobs of the run's own.

They are queued in the transaction that records the end, which happens once; so each is queued once. A hook
is not retried, and an engine that dies in one is not replaced: what it did before is not done twice.
"""

from __future__ import annotations

import json
from typing import Any

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


def queue_hooks(connection: Connection, effects: Effects, run: Run, job: Job, now: float) -> None:
    """Queue what the flow wants called at this end of ``run``, whose own job is ``job``."""
    for hook in job.settings.hooks:
        if hook.state == run.state:
            _queue(connection, effects, run, job, hook, now)


def _queue(connection: Connection, effects: Effects, run: Run, job: Job, hook: Hook, now: float) -> None:
    number = next_number(connection, run.id)
    key = f"{HOOK}:{hook.state}:{hook.index}"
    name = f"on_{hook.state}: {hook.name}"
    called = Job(
        id=f"{run.id}.{number}",
        run=run.id,
        kind=HOOK,
        state="queued",
        flow=job.flow,
        entry=job.entry,
        args={"enc": "json", "text": summary_text(run)},
        bundle=job.bundle,
        ask=Ask(),
        settings=JobSettings(crash_retries=0, timeout_s=TIMEOUT_S, secrets=job.settings.secrets),
        age_at=now,
        created_at=now,
        queued_at=now,
        key=key,
        name=name,
        priority=job.priority,
        fingerprint=job.fingerprint,
        git=job.git,
    )
    task = TaskRun(run.id, key, number, name, "queued", job=job.id, placed=called.id)
    connection.execute(JOBS.insert, JOBS.dump(called))
    connection.execute(TASK_RUNS.insert, TASK_RUNS.dump(task))
    effects.enqueued[called.id] = called
    effects.streams.add(run.id)


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
