"""What nodes yield while they run: the newest attempt of each stream, its values numbered from 1.

A stream is open, ended or broken. One that is open belongs to the lease under which it is written: once that
is not current any more, nobody goes on with it, and it counts as broken without being written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from farhand_worker.protocol import ProtocolViolation, Yielded, dumps

from ..model import Job, Json
from .database import Database
from .guard import Connection

PAGE_CHARS_MAX = 64 * 1024
"""A page, and a row, ends with the value that reaches this."""

LOST = "the attempt that yielded it was lost"

_STEPS = {"begun": "open", "ended": "ended", "broken": "broken"}
_FIND = (
    "SELECT s.id, s.tries, s.state, s.message, s.last_number,"
    " holder.lease = s.lease AND holder.state IN ('leased', 'running')"
    " FROM jobs AS reader JOIN streams AS s ON s.run = reader.run JOIN jobs AS holder ON holder.id = s.job"
    " WHERE reader.id = ? AND s.key = ? AND s.name = ?"
)


@dataclass(frozen=True, slots=True)
class StreamPage:
    """The values of a stream after a number, up to ``last``, of ``total`` that there are so far.

    ``tries`` numbers its attempts from 1.
    """

    tries: int
    state: str
    message: str
    total: int
    last: int
    values: Sequence[Json] = ()


class Streams:
    """Reads what was yielded in the runs that jobs are part of."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, job_id: str, key: str, name: str, after: int) -> StreamPage | None:
        """A page of a stream of the job's run; None for one that nobody has begun."""
        return await self._database.read(lambda connection: _page(connection, job_id, key, name, after))


def _page(connection: Connection, job_id: str, key: str, name: str, after: int) -> StreamPage | None:
    row = connection.execute(_FIND, (job_id, key, name)).fetchone()
    if row is None:
        return None
    id, tries, state, message, total, held = row
    if state == "open" and not held:
        state, message = "broken", LOST
    values = _values_after(connection, id, after)
    return StreamPage(tries, state, message, total, after + len(values), values)


def _values_after(connection: Connection, stream: int, after: int) -> list[Json]:
    values: list[Json] = []
    chars = 0
    cursor = connection.execute(
        "SELECT first_number, items FROM stream_values WHERE stream = ? AND last_number > ?"
        " ORDER BY last_number LIMIT 1000",
        (stream, after),
    )
    for first, text in cursor:
        values += msgspec.json.decode(text)[max(0, after + 1 - first) :]
        chars += len(text)
        if chars >= PAGE_CHARS_MAX:
            break
    return values


def note_yields(connection: Connection, job: Job, yields: Iterable[Yielded]) -> None:
    """Write what a job reports of its streams, in order. Raises `ProtocolViolation`."""
    gathered: dict[tuple[str, str], list[Json]] = {}
    for event in yields:
        place = event.key, event.name
        if event.step == "value":
            gathered.setdefault(place, []).append(event.value or {})
            continue
        if event.step not in _STEPS:
            raise ProtocolViolation(f"a stream cannot have a step {event.step!r}")
        _append(connection, job, place, gathered.pop(place, []))
        _turn(connection, job, place, event)
    for place, values in gathered.items():
        _append(connection, job, place, values)


def _turn(connection: Connection, job: Job, place: tuple[str, str], event: Yielded) -> None:
    state = _STEPS[event.step]
    if event.step != "begun":
        connection.execute(
            "UPDATE streams SET state = ?, message = ? WHERE run = ? AND key = ? AND name = ?",
            (state, event.message, job.run, *place),
        )
        return
    (id,) = connection.execute(
        "INSERT INTO streams (run, key, name, tries, job, lease, state, message, last_number)"
        " VALUES (?, ?, ?, 1, ?, ?, ?, '', 0) ON CONFLICT (run, key, name) DO UPDATE SET"
        " tries = streams.tries + 1, job = excluded.job, lease = excluded.lease, state = excluded.state,"
        " message = '', last_number = 0 RETURNING id",
        (job.run, *place, job.id, job.lease, state),
    ).fetchone()
    connection.execute("DELETE FROM stream_values WHERE stream = ?", (id,))


def _append(connection: Connection, job: Job, place: tuple[str, str], values: list[Json]) -> None:
    """Add values to a stream that was begun, in rows of a page or less."""
    if not values:
        return
    row = connection.execute(
        "SELECT id, last_number FROM streams WHERE run = ? AND key = ? AND name = ?", (job.run, *place)
    ).fetchone()
    if row is None:
        raise ProtocolViolation(f"the stream {place[1]!r} of job {job.id} was not begun")
    id, last = row
    rows: list[tuple[Any, ...]] = []
    for text, count in _rows(values):
        rows.append((job.run, id, last + count, last + 1, text))
        last += count
    connection.executemany(
        "INSERT INTO stream_values (run, stream, last_number, first_number, items) VALUES (?, ?, ?, ?, ?)",
        rows,
    )
    connection.execute("UPDATE streams SET last_number = ? WHERE id = ?", (last, id))


def _rows(values: list[Json]) -> Iterable[tuple[str, int]]:
    texts: list[str] = []
    chars = 0
    for value in values:
        text = dumps(value)
        texts.append(text)
        chars += len(text)
        if chars >= PAGE_CHARS_MAX:
            yield f"[{','.join(texts)}]", len(texts)
            texts, chars = [], 0
    if texts:
        yield f"[{','.join(texts)}]", len(texts)
