"""Journals: runs that are scripts. They write files of their own; the store's owner imports them here.

Records are numbered by line from 1, and the last number is stored with what it brought, so importing a
journal again from any line changes nothing. The first record makes the run, already running.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from farhand_worker.protocol import EVENTS, ProtocolViolation, Result

from ..lifecycle import RUN, Ending, Standing, conclude, is_terminal
from ..model import Run
from .batch import STREAMING, Batch, ending_of, unexpected
from .changes import Changes, Effects
from .closing import close_called, close_tasks, left_behind
from .database import Database
from .guard import Connection
from .moves import load_run, move_run, note_run
from .rows import RUNS, optional_json, storable

_OPENING = "script"


@dataclass(frozen=True)
class _Script:
    """The first record: which flow a script runs, and where."""

    run: str
    flow: str
    params: Any
    at: float
    project: str = "default"
    pid: int = 0
    host: str = ""
    python: str = ""
    file: str = ""
    name: str | None = None


class Journals:
    """Imports the journals of scripts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def record(self, run_id: str, first: int, records: Sequence[Sequence[Any]], now: float) -> int:
        """Import lines of a journal, decoded, of which ``records[0]`` is line ``first``.

        Each is ``[kind, body]`` or ``[kind, body, digests]``. Returns the last line imported so far.
        Raises `ProtocolViolation` when lines are missing before them or are not a journal's.
        """
        events = [_typed(record) for record in records]
        try:
            return await self._database.write(
                lambda connection: _record(connection, run_id, first, events, now)
            )
        except UnicodeEncodeError:  # half a surrogate pair, which is text in Python and nowhere else
            cleaned = [storable(event) for event in events]
            return await self._database.write(
                lambda connection: _record(connection, run_id, first, cleaned, now)
            )

    async def open_runs(self) -> list[str]:
        """Runs of scripts that have not ended, as far as is known."""
        sql = "SELECT id FROM runs WHERE origin = 'script' AND ended_at IS NULL AND root IS NULL ORDER BY id"
        return await self._database.read(
            lambda connection: [row[0] for row in connection.execute(sql).fetchall()]
        )

    async def crash(self, run_id: str, now: float, message: str) -> Changes:
        """The script is gone without an end; changes nothing when its run has ended."""

        def write(connection: Connection) -> Changes:
            effects = Effects()
            run = load_run(connection, run_id)
            if not is_terminal(RUN, run.state):
                ending = Ending("crashed", "script_died", message)
                _end(connection, effects, run, ending, now, max(now, run.started_at or 0.0), {})
            return effects.freeze()

        return await self._database.write(write)

    async def last(self, run_id: str) -> int:
        """The last line imported of a run's journal; 0 when there is none."""
        return await self._database.read(lambda connection: _last(connection, run_id))


def _typed(record: Sequence[Any]) -> Any:
    try:
        kind, body = record[0], record[1]
        return msgspec.convert(body, _Script if kind == _OPENING else EVENTS[kind], strict=False)
    except (msgspec.ValidationError, KeyError, IndexError, TypeError) as error:
        raise ProtocolViolation(f"not a record of a journal: {error!r}") from error


def _last(connection: Connection, run_id: str) -> int:
    row = connection.execute("SELECT seq FROM journals WHERE run = ?", (run_id,)).fetchone()
    return 0 if row is None else int(row[0])


def _record(connection: Connection, run_id: str, first: int, events: list[Any], now: float) -> int:
    imported = _last(connection, run_id)
    last = first + len(events) - 1
    if last <= imported:
        return imported
    if first < 1:
        raise ProtocolViolation(f"lines are numbered from 1, not from {first}")
    if first > imported + 1:
        raise ProtocolViolation(f"lines {imported + 1} to {first - 1} of journal {run_id} are missing")
    events = events[imported + 1 - first :]
    if imported == 0:
        _open(connection, run_id, events.pop(0), now)
    batch = Batch(connection, Effects(), run_id, now)
    batch.load(events)
    for event in events:
        handler = _HANDLERS.get(type(event))
        if handler is None:
            raise unexpected(getattr(event, "kind", _OPENING))
        handler(batch, event)
    batch.flush()
    connection.execute("UPDATE journals SET seq = ? WHERE run = ?", (last, run_id))
    return last


def _open(connection: Connection, run_id: str, script: Any, now: float) -> None:
    if not isinstance(script, _Script) or script.run != run_id:
        raise ProtocolViolation(f"journal {run_id} does not begin with the script of that run")
    run = Run(
        id=run_id,
        flow=script.flow,
        state="running",
        reason="script",
        message=f"running as a script on {script.host or 'this machine'}",
        params=script.params if isinstance(script.params, str) else optional_json(script.params) or "{}",
        created_at=script.at,
        project=script.project,
        origin="script",
        started_at=script.at,
        attempt=1,
        host=script.host,
        name=script.name or "",
    )
    connection.execute(RUNS.insert, RUNS.dump(run))
    connection.execute("INSERT INTO journals (run, seq) VALUES (?, 0)", (run_id,))
    where = {"pid": script.pid, "host": script.host, "python": script.python, "file": script.file}
    note_run(connection, run, now, where)


def _on_result(batch: Batch, event: Result) -> None:
    batch.flush()
    ending = ending_of(event)
    run = load_run(batch.connection, batch.run)
    if is_terminal(RUN, run.state):
        return  # it was called crashed meanwhile, and a terminal state is final
    outcome = {"result": event.value} if event.state == "completed" else {"error": event.error}
    _end(batch.connection, batch.effects, run, ending, batch.now, event.at, outcome)


def _end(
    connection: Connection,
    effects: Effects,
    run: Run,
    ending: Ending,
    now: float,
    at: float,
    outcome: dict[str, Any],
) -> None:
    """A script has one attempt: whatever ends it ends its run."""
    verdict = conclude(Standing(crash_retries=0, started=True), ending)
    ended = move_run(
        connection, effects, run, verdict.state, verdict.reason, verdict.message, now,
        ended_at=at, **outcome,
    )  # fmt: skip
    close_tasks(connection, run.id, left_behind(verdict.state), at)
    close_called(connection, effects, ended, now, at)


_HANDLERS: Mapping[type[Any], Callable[[Any, Any], None]] = {**STREAMING, Result: _on_result}
