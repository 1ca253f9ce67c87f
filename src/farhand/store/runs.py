"""Runs: what people asked for, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import IllegalTransition
from ..lifecycle import JOB, RUN, RUN_INITIAL, advance, is_terminal
from ..model import Attempt, AuditEntry, Job, Page, Run
from .answers import Answer
from .attempts import attempt_of, unheard_of
from .audit import add_entry
from .changes import Changes, Effects, Leased
from .claims import Claim
from .closing import cancel_run
from .database import Database
from .guard import Connection, Variants
from .leases import Room, lease_numbers, leased_as, place_of
from .moves import add_notes, moved_run, note_run, noted
from .nested import Part, part_of
from .retention import NOT_DELETED
from .rows import ATTEMPTS, JOBS, RUNS
from .run_blobs import digests_in, name_blobs
from .seeds import Seed, sow

_BEYOND = "\U0010ffff"
"""Sorts after every character an id may have."""


SCANNED_MAX = 3_000
"""How many runs one page of a text search looks at."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which runs a page is of. ``since_id``: none before it.

    ``text`` stands in the id, flow, name, message or parameters.
    """

    flow: str | None = None
    state: str | None = None
    sweep: str | None = None
    since_id: str | None = None
    text: str | None = None
    host: str | None = None
    parent: str | None = None
    root: str | None = None


ANY = Wanted()


class Runs:
    """Creates, reads and cancels runs. Ids are given by the caller and ordered by time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(
        self, run: Run, job: Job, seed: Seed | None = None, entry: AuditEntry | None = None
    ) -> Answer[tuple[Run, Job, bool]]:
        """Store a new run and its job, with the outcomes that ``seed`` takes over from an earlier run.

        ``entry`` tells the audit log of it. With an idempotency key that the flow has seen before, nothing
        is stored: the earlier run and its job are returned, and False. The writer has it when this returns,
        so that a lease which is asked for next shares its commit.
        """
        if run.state not in RUN_INITIAL:
            raise IllegalTransition(f"a run does not begin as {run.state}", state=run.state)

        def write(connection: Connection) -> tuple[Run, Job, bool]:
            made = create_run(connection, run, job, seed)
            if entry is not None and made[2]:
                add_entry(connection, replace(entry, details={**entry.details, "made": run.id}))
            return made

        return self._database.submit(write)

    def start(
        self, run: Run, job: Job, claim: Claim, entry: AuditEntry | None = None
    ) -> Answer[Leased | None]:
        """As `create`, for a run without an idempotency key whose job was promised a worker.

        With the lease on it, where the store agrees to the claim; else the job is queued, and None.
        """

        def write(connection: Connection) -> Leased | None:
            leased = _start_leased(connection, run, job, claim)
            if leased is None:
                create_run(connection, run, job)
            if entry is not None:
                add_entry(connection, replace(entry, details={**entry.details, "made": run.id}))
            return leased

        return self._database.submit(write)

    async def get(self, run_id: str) -> Run | None:
        """The run, or None."""

        def read(connection: Connection) -> Run | None:
            sql = f"SELECT {RUNS.columns} FROM runs WHERE id = ? AND {NOT_DELETED}"
            row = connection.execute(sql, (run_id,)).fetchone()
            return None if row is None else RUNS.load(row)

        return await self._database.read(read)

    async def find(self, prefix: str) -> list[str]:
        """Ids that begin with ``prefix``: none, the one, or two when it is ambiguous."""
        sql = f"SELECT id FROM runs WHERE id >= ? AND id < ? AND {NOT_DELETED} ORDER BY id LIMIT 2"
        return await self._database.read(
            lambda connection: [row[0] for row in connection.execute(sql, (prefix, prefix + _BEYOND))]
        )

    async def page(self, limit: int, cursor: str | None = None, wanted: Wanted = ANY) -> Page[Run]:
        """A page of runs, newest first; ``cursor`` is the ``next`` of the page before.

        A search for text looks at no more than `SCANNED_MAX` runs a page, so that its cost is bounded: a
        page may have few items, or none, and still be followed by another.
        """
        return await self._database.read(lambda connection: _page(connection, limit, cursor, wanted))

    async def counts(self) -> dict[str, int]:
        """How many runs are in each state that is not the end of one; those are few."""
        states = [state for state in RUN if not is_terminal(RUN, state)]
        sql = "SELECT count(*) FROM runs WHERE state = ?"
        return await self._database.read(
            lambda connection: {s: int(connection.execute(sql, (s,)).fetchone()[0]) for s in states}
        )

    async def part(self, run_id: str) -> Part:
        """Where what belongs to the run is found."""
        return await self._database.read(lambda connection: part_of(connection, run_id))

    async def attempts(self, run_id: str) -> list[Attempt]:
        """The attempts of the run's own job, first to last. A placed call has attempts of its own.

        A flow that was called inside of a run has a job only if it was placed.
        """
        of_run = (
            "SELECT max(jobs.id) FROM runs"
            " JOIN jobs ON jobs.run = coalesce(runs.root, runs.id) AND jobs.key = runs.key"
            " WHERE runs.id = ?"
        )
        heard_of = f"SELECT {ATTEMPTS.columns} FROM attempts WHERE job = ? ORDER BY number"

        def read(connection: Connection) -> list[Attempt]:
            job = connection.execute(of_run, (run_id,)).fetchone()
            rows = connection.execute(heard_of, job).fetchall()
            latest = map(attempt_of, unheard_of(connection, "id = ?", job))
            return [*map(ATTEMPTS.load, rows), *latest]

        return await self._database.read(read)

    def cancel(self, run_id: str, now: float) -> Answer[Changes]:
        """Cancel a run and what it started; once more is harmless.

        Raises `NotFound`, or `Conflict` when the run has ended or is a script.
        """

        def write(connection: Connection) -> Changes:
            effects = Effects()
            cancel_run(connection, effects, run_id, now)
            return effects.freeze()

        return self._database.submit(write)


def _page(connection: Connection, limit: int, cursor: str | None, wanted: Wanted) -> Page[Run]:
    asked = {
        "flow = ?": wanted.flow,
        "state = ?": wanted.state,
        "sweep = ?": wanted.sweep,
        "host <> '' AND host = ?": wanted.host,
        "parent = ?": wanted.parent,
        "root = ?": wanted.root,
        "id >= ?": wanted.since_id,
        "id < ?": cursor,
    }
    terms = {term: value for term, value in asked.items() if value is not None}
    if wanted.text is not None:
        return _search(connection, limit, terms, wanted.text)
    conditions = " AND ".join([*terms, NOT_DELETED])
    newest = f"SELECT {RUNS.columns} FROM runs WHERE {conditions} ORDER BY id DESC LIMIT ?"
    rows: list[Any] = connection.execute(newest, (*terms.values(), limit + 1)).fetchall()
    items = [RUNS.load(row) for row in rows[:limit]]
    return Page(items, items[-1].id if len(rows) > limit else None)


def _search(connection: Connection, limit: int, terms: dict[str, str], text: str) -> Page[Run]:
    """Those among the next `SCANNED_MAX` runs that hold the text; the first are found without the last."""
    terms = {"id < ?": _BEYOND, **terms}
    conditions = " AND ".join(terms)
    bound = connection.execute(
        f"SELECT id FROM runs WHERE {conditions} ORDER BY id DESC LIMIT 1 OFFSET ?",
        (*terms.values(), SCANNED_MAX - 1),
    ).fetchone()
    pattern, columns = _pattern(text), columns_for(text)
    # SQLite's ignores the case of ASCII letters, and takes a third less time where nothing can be escaped.
    like = "LIKE ?" if pattern == f"%{text}%" else f"LIKE ? {_ESCAPE}"
    rows: list[Any] = connection.execute(
        Variants(
            sqlite=_SEARCH.format(conditions=conditions, holds=_holds(columns, like)),
            postgresql=_SEARCH.format(conditions=conditions, holds=_holds(columns, f"ILIKE ? {_ESCAPE}")),
        ),
        (*terms.values(), "" if bound is None else bound[0], *[pattern] * len(columns), limit),
    ).fetchall()
    items = [RUNS.load(row) for row in rows]
    if len(items) == limit:
        return Page(items, items[-1].id)
    return Page(items, None if bound is None else bound[0])


_TEXTS = ("message", "params", "name")
_SPELLED = {
    "id": frozenset("0123456789abcdefghjkmnpqrstvwxyz"),
    "flow": frozenset("0123456789abcdefghijklmnopqrstuvwxyz._-"),
}
"""Columns that hold no other ASCII characters than these, so that most texts need not be looked for there."""
_ESCAPE = "ESCAPE '!'"
_SEARCH = (
    f"SELECT {RUNS.columns} FROM runs WHERE {{conditions}} AND id >= ? AND {NOT_DELETED}"
    " AND ({holds}) ORDER BY id DESC LIMIT ?"
)


def columns_for(text: str) -> list[str]:
    """The columns in which a text can stand; beyond ASCII, who knows what is like what."""
    needed = {character for character in text.lower() if character.isascii()}
    return [*_TEXTS, *(column for column, spelled in _SPELLED.items() if needed <= spelled)]


def _holds(columns: Sequence[str], like: str) -> str:
    """The condition that one of the texts of a run is ``like`` the pattern."""
    return " OR ".join(f"{column} {like}" for column in columns)


def _pattern(text: str) -> str:
    for special in "!%_":
        text = text.replace(special, f"!{special}")
    return f"%{text}%"


def create_run(connection: Connection, run: Run, job: Job, seed: Seed | None = None) -> tuple[Run, Job, bool]:
    """As `Runs.create`, inside a transaction."""
    if run.idempotency_key is not None:
        found = connection.execute(
            f"SELECT {RUNS.columns} FROM runs WHERE flow = ? AND idempotency_key = ?",
            (run.flow, run.idempotency_key),
        ).fetchone()
        if found is not None:
            earlier = RUNS.load(found)
            row = connection.execute(
                f"SELECT {JOBS.columns} FROM jobs WHERE run = ? AND key = ''", (earlier.id,)
            ).fetchone()
            return earlier, JOBS.load(row), False
    _insert(connection, run, job)
    if seed is not None:
        sow(connection, seed, job)
    note_run(connection, run, run.created_at)
    return run, job, True


def _start_leased(connection: Connection, run: Run, job: Job, claim: Claim) -> Leased | None:
    """A new run whose job is handed over as it is stored: no row of it is written twice."""
    place = place_of(connection, job, Room(connection, claim.worker), claim.capacity, claim.fell_back)
    if place is None:
        return None
    (given,) = lease_numbers(connection, 1)
    columns = leased_as(job, claim.worker, given, place, run.created_at, claim.git)
    held = JOBS.changed(job, {"state": advance(JOB, job.state, "leased"), **columns})
    message = f"handed to {claim.worker}"
    taken = moved_run(run, "starting", "leased", message, worker=claim.worker, attempt=held.attempt)
    _insert(connection, taken, held)
    add_notes(connection, [noted(run, run.created_at), noted(taken, run.created_at)])
    return Leased(held, taken, 0)


def _insert(connection: Connection, run: Run, job: Job) -> None:
    connection.execute(RUNS.insert, RUNS.dump(run))
    connection.execute(JOBS.insert, JOBS.dump(job))
    if digests := digests_in(run.params):
        name_blobs(connection, run.id, digests)
