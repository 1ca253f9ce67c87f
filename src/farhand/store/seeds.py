"""Seeds: outcomes that a run takes over from the ended run that it retries.

They are copied, as rows of the new run under its own job, in the transaction that creates it; so replaying
them is no different from replaying what an earlier attempt kept. Keys are the same in every run of a flow.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import NotFound
from ..model import Job
from .guard import Connection
from .tasks import made_by

FAILURE, START = "failure", "start"

_COPY = """
INSERT INTO task_runs (run, key, number, name, state, scope, place, attempts, worker, started_at, ended_at,
    kept, value, error, job, seeded, needs, tags, nested, flow_run)
SELECT ?, t.key, t.number, t.name, t.state, t.scope, t.place, t.attempts, t.worker, t.started_at, t.ended_at,
    t.kept, t.value, t.error,
    CASE WHEN j.id IS NULL THEN replace(t.job, ?, ?) WHEN j.key = '' THEN ? ELSE ? || j.key END, 1,
    t.needs, t.tags, t.nested, t.flow_run
FROM task_runs t LEFT JOIN jobs j ON j.id = t.job
WHERE t.run = ? AND t.state = 'completed' AND t.kept = 1 AND t.number < ?
"""
_NO_END = 2**62


@dataclass(frozen=True, slots=True)
class Seed:
    """What to take over from the run ``source``.

    ``since``: failure (all that completed), start (nothing), or a task, by its name or the beginning of
    a call's key: that call and all that were submitted after it run again. ``in_order``: only what was
    submitted before the first call without a completed outcome, for a run with other code or parameters.
    """

    source: str
    since: str = FAILURE
    in_order: bool = False


def sow(connection: Connection, seed: Seed, job: Job) -> None:
    """Copy the outcomes to the new run of ``job``. Raises `NotFound` for a task that was not called."""
    if seed.since == START:
        return
    end = _NO_END if seed.since == FAILURE else _first_call_of(connection, seed)
    if seed.in_order:
        end = min(end, _first_without_outcome(connection, seed.source))
    theirs, ours = f"{seed.source}/", f"{job.run}/"
    connection.execute(_COPY, (job.run, theirs, ours, job.id, ours, seed.source, end))


def adopt(connection: Connection, run: str, key: str, job_id: str) -> None:
    """Give the job of a newly placed call what calls inside it left in the retried run."""
    its, keys = made_by(f"{run}/{key}", run)
    connection.execute(f"UPDATE task_runs SET job = ? WHERE {its}", (job_id, *keys))


def _first_call_of(connection: Connection, seed: Seed) -> int:
    found = connection.execute(
        "SELECT min(number) FROM task_runs WHERE run = ? AND (name = ? OR substr(key, 1, ?) = ?)",
        (seed.source, seed.since, len(seed.since), seed.since),
    ).fetchone()[0]
    if found is None:
        rows = connection.execute(
            "SELECT name FROM task_runs WHERE run = ? GROUP BY name ORDER BY min(number) LIMIT 10",
            (seed.source,),
        ).fetchall()
        known = ", ".join(row[0] for row in rows) or "no task at all"
        raise NotFound(f"run {seed.source} did not call {seed.since!r}; it called {known}")
    return int(found)


def _first_without_outcome(connection: Connection, run: str) -> int:
    found = connection.execute(
        "SELECT min(number) FROM task_runs WHERE run = ? AND NOT (state = 'completed' AND kept = 1)", (run,)
    ).fetchone()[0]
    return _NO_END if found is None else int(found)
