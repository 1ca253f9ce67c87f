"""Task runs: the calls inside a run, each known by its checkpoint key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from farhand_worker.protocol import Checkpoint, ProtocolViolation, TaskBegan

from ..errors import IllegalTransition
from ..lifecycle import TASK, may_advance
from ..model import Job, Json, Page, TaskRun
from .database import Database
from .guard import Connection, Variants
from .parts import among
from .rows import TASK_RUNS, optional_json, to_json

_ENDED = ("completed", "failed", "cancelled", "crashed", "skipped")
_OVER = "state IN ('completed', 'failed', 'cancelled', 'crashed')"
_WITHOUT_VALUE = ", ".join(
    "NULL" if column == "value" else column for column in TASK_RUNS.columns.split(", ")
)
_COUNTS = ", ".join(f"sum(CASE state WHEN '{state}' THEN 1 ELSE 0 END)" for state in TASK)
"""The states one by one: grouping would sort all that a run called."""


class Tasks:
    """Reads the task runs of a run or a job."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(
        self,
        run_id: str,
        after: int = 0,
        limit: int = 200,
        keys: Sequence[str] | None = None,
        state: str | None = None,
    ) -> Page[TaskRun]:
        """The task runs of a run in the order they were first seen, or those of flows called inside of it.

        Those in ``state`` alone, if it is given.
        """
        sql, values = among(keys, f"SELECT {TASK_RUNS.columns} FROM task_runs", "number", state is not None)
        wanted = () if state is None else (state,)

        def read(connection: Connection) -> Page[TaskRun]:
            rows = connection.execute(sql, (run_id, after, *values, *wanted, limit + 1)).fetchall()
            items = [TASK_RUNS.load(row) for row in rows[:limit]]
            return Page(items, str(items[-1].number) if len(rows) > limit else None)

        return await self._database.read(read)

    async def tally(self, run_id: str, after: int = 0, keys: Sequence[str] | None = None) -> dict[str, int]:
        """How many of them are in each state; a state that none is in is left out."""
        sql, values = among(keys, f"SELECT {_COUNTS} FROM task_runs", "number", paged=False)

        def read(connection: Connection) -> dict[str, int]:
            row = connection.execute(sql, (run_id, after, *values)).fetchone()
            return {state: int(count) for state, count in zip(TASK, row, strict=True) if count}

        return await self._database.read(read)

    async def shapes(self, run_id: str, limit: int, nested: str | None = None) -> list[TaskRun]:
        """The first task runs of a run without their values, or those of a flow called inside of it."""
        within = "" if nested is None else " AND nested = ?"
        sql = f"SELECT {_WITHOUT_VALUE} FROM task_runs WHERE run = ?{within} ORDER BY number LIMIT ?"
        values = (run_id, limit) if nested is None else (run_id, nested, limit)
        return await self._database.read(
            lambda connection: [TASK_RUNS.load(row) for row in connection.execute(sql, values).fetchall()]
        )

    async def kept(self, job_id: str, after: int = 0, limit: int = 500) -> list[TaskRun]:
        """Kept outcomes of the calls this job made, by number; a later attempt replays them."""
        further = f"AND number > ? AND kept = 1 AND {_OVER} ORDER BY number LIMIT ?"
        return await self._database.read(
            lambda connection: _calls_of(connection, job_id, further, after, limit)
        )

    async def placed(self, job_id: str) -> list[TaskRun]:
        """The calls this job placed elsewhere that have ended, by number."""
        further = f"AND placed IS NOT NULL AND {_OVER} ORDER BY number"
        return await self._database.read(lambda connection: _calls_of(connection, job_id, further))


def _calls_of(connection: Connection, job_id: str, further: str, *values: Any) -> list[TaskRun]:
    """The calls that a job made, as far as they meet a further condition."""
    found = connection.execute("SELECT run FROM jobs WHERE id = ?", (job_id,)).fetchone()
    if found is None:
        return []
    its, keys = made_by(job_id, found[0])
    sql = f"SELECT {TASK_RUNS.columns} FROM task_runs WHERE {its} {further}"
    return [TASK_RUNS.load(row) for row in connection.execute(sql, (*keys, *values)).fetchall()]


def made_by(job_id: str, run: str) -> tuple[str, tuple[str, ...]]:
    """The condition for calls that a job of a run made, and the values for it.

    An index has those of jobs whose ids are longer than their run's, as those of placed calls are, for a run
    may have many such jobs. Its own has most of what there is of its run.
    """
    if len(job_id) > len(run):
        return "job = ? AND length(job) > length(run)", (job_id,)
    return "run = ? AND job = ?", (run, job_id)


def count_kept(connection: Connection, job: Job) -> int:
    """How many outcomes a new attempt of this job may replay."""
    its, keys = made_by(job.id, job.run)
    sql = f"SELECT count(*) FROM task_runs WHERE {its} AND kept = 1 AND {_OVER}"
    return int(connection.execute(sql, keys).fetchone()[0])


def next_number(connection: Connection, run_id: str) -> int:
    """The number of the next new task run of a run."""
    row = connection.execute(
        "SELECT number FROM task_runs WHERE run = ? ORDER BY number DESC LIMIT 1", (run_id,)
    ).fetchone()
    return 1 if row is None else int(row[0]) + 1


def outcome_body(task: TaskRun) -> Json:
    """An ended task run as the body of a `Checkpoint` event."""
    return {
        "key": task.key,
        "name": task.name,
        "state": task.state,
        "started_at": task.started_at or task.ended_at or 0.0,
        "ended_at": task.ended_at or 0.0,
        "scope": task.scope,
        "index": task.index,
        "attempts": task.attempts,
        "kept": task.kept,
        "value": task.value,
        "error": task.error,
    }


_KNOWN = Variants(
    sqlite="SELECT key, state, kept AND NOT seeded FROM task_runs"
    " WHERE run = ? AND key IN (SELECT value FROM json_each(?))",
    postgresql="SELECT key, state, kept * (1 - seeded) FROM task_runs"
    " WHERE run = ? AND key IN (SELECT jsonb_array_elements_text(?::jsonb))",
)
_INSERT = (
    "INSERT INTO task_runs (name, state, scope, place, attempts, worker, started_at, ended_at, kept, value,"
    " error, job, needs, tags, nested, flow_run, run, key, number)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_UPDATE = (
    "UPDATE task_runs SET name = ?, state = ?, scope = ?, place = ?, attempts = ?, worker = ?,"
    " started_at = ?, ended_at = ?, kept = ?, value = ?, error = ?, job = ?, seeded = 0,"
    " needs = coalesce(?, needs), tags = coalesce(?, tags), nested = coalesce(?, nested),"
    " flow_run = coalesce(?, flow_run)"
    " WHERE run = ? AND key = ? AND state = ?"
)


_NO_FACTS = (None, None, None, None)
"""What only the beginning of a call says: needs, tags, nested, flow_run; a row keeps what it has of them."""


class TaskBatch:
    """The task events of one report: folded per key, checked against `lifecycle.TASK`, written at once.

    A kept outcome is final: what comes later for its key changes nothing. A completed outcome that was
    not kept has to be made again by a later attempt, so it counts as queued; and so does one that was taken
    over from a retried run, if the engine makes that call all the same.
    """

    def __init__(self, connection: Connection, run: str, job: str | None, worker: str | None) -> None:
        self.progressed = False  # whether a kept outcome came that was not there before
        self._connection = connection
        self._run = run
        self._job = job
        self._worker = worker
        self._found: dict[str, str] = {}  # key → state in the store
        self._states: dict[str, str] = {}  # key → state after the events so far
        self._final: set[str] = set()
        self._number: int | None = None  # the last that was given away, while nobody else gives any
        self._latest: dict[str, TaskBegan | Checkpoint] = {}  # of each call: a row is made of no other
        self._facts: dict[str, tuple[Any, ...]] = {}

    def load(self, keys: list[str]) -> None:
        """Read what the store has of these calls; once, before the first event."""
        rows = self._connection.execute(
            _KNOWN,
            (self._run, to_json(keys)),
        ).fetchall()
        for key, state, kept in rows:
            self._found[key] = state
            if state == "completed" and not kept:
                self._states[key] = "queued"
            else:
                self._states[key] = state
            if state in _ENDED and kept:
                self._final.add(key)

    @property
    def gathered(self) -> bool:
        """Whether anything is to be written."""
        return bool(self._latest)

    def next_number(self) -> int:
        """The number of the next new task run; it is taken."""
        if self._number is None:
            self._number = next_number(self._connection, self._run) - 1
        self._number += 1
        return self._number

    def go_on_from(self, number: int) -> None:
        """The last number in the store, as it was just read."""
        self._number = number

    def forget_number(self) -> None:
        """Others may have given numbers away since."""
        self._number = None

    def may_begin(self, key: str) -> bool:
        """Whether the call is not over already."""
        state = self._states.get(key, "queued")
        return state == "running" or may_advance(TASK, state, "running")

    def began(self, event: TaskBegan, flow_run: str | None = None) -> None:
        """The call is running; a failed one is made again. ``flow_run`` is the run of a call of a flow."""
        key = event.key
        if not self.may_begin(key):
            return
        self._states[key] = "running"
        self._final.discard(key)
        self._latest[key] = event
        if event.needs or event.tags or event.nested or flow_run:
            needs, tags = optional_json(event.needs or None), optional_json(event.tags or None)
            self._facts[key] = (needs, tags, event.nested, flow_run)
        else:
            self._facts.pop(key, None)

    def ended(self, event: Checkpoint) -> None:
        """The call's outcome. One that was interrupted or failed earlier has run again by now."""
        key, to = event.key, event.state
        state = self._states.get(key, "queued")
        if to not in _ENDED:
            raise ProtocolViolation(f"a task run does not end as {to!r}")
        if key in self._final:
            return
        if not may_advance(TASK, state, to) and not may_advance(TASK, state, "running"):
            return
        self._states[key] = to
        if event.kept:
            self._final.add(key)
            self.progressed = True
        self._latest[key] = event

    def flush(self) -> None:
        """Write what has gathered."""
        if not self._latest:
            return
        new: list[tuple[Any, ...]] = []
        known: list[tuple[Any, ...]] = []
        for key, event in self._latest.items():
            row = self._row(event)
            if key in self._found:
                known.append((*row, self._run, key, self._found[key]))
            else:
                new.append((*row, self._run, key, self.next_number()))
            self._found[key] = self._states[key]
        self._latest = {}
        if new:
            self._connection.executemany(_INSERT, new)
        if known and self._connection.executemany(_UPDATE, known).rowcount != len(known):
            raise IllegalTransition(f"a task run of {self._run} was moved by somebody else")

    def _row(self, event: TaskBegan | Checkpoint) -> tuple[Any, ...]:
        """What the store has of a call, as its latest event leaves it."""
        facts = self._facts.get(event.key, _NO_FACTS)
        if isinstance(event, TaskBegan):
            return (
                event.name, "running", event.scope, event.index, 0, self._worker,
                event.at, None, 1, None, None, self._job, *facts,
            )  # fmt: skip
        return (
            event.name, event.state, event.scope, event.index, event.attempts, self._worker,
            event.started_at, event.ended_at, int(event.kept),
            optional_json(event.value), optional_json(event.error), self._job, *facts,
        )  # fmt: skip
