"""Progress: what a run, or a call of it, said last of how far it has come. The rest is in the metrics."""

from __future__ import annotations

from collections.abc import Mapping

from farhand_worker.protocol import Progress

from .guard import Connection
from .rows import to_json


def note_progress(connection: Connection, run: str, said: Mapping[str | None, Progress]) -> None:
    """Keep the last word of each call, by its key; None is the flow itself."""
    calls = [(_shown(event), run, task) for task, event in said.items() if task]
    if calls:
        connection.executemany("UPDATE task_runs SET progress = ? WHERE run = ? AND key = ?", calls)
    flows = [(_shown(event), run, task) for task, event in said.items() if task and task == event.nested]
    if flows:
        connection.executemany(
            "UPDATE runs SET progress = ? WHERE root = ? AND key = ? AND ended_at IS NULL", flows
        )
    own = said.get(None)
    if own is not None:
        connection.execute("UPDATE runs SET progress = ? WHERE id = ?", (_shown(own), run))


def _shown(event: Progress) -> str:
    fields = {"at": event.at, "done": event.done, "total": event.total, "message": event.message}
    return to_json({name: value for name, value in fields.items() if value is not None})
