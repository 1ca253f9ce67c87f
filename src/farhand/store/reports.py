"""What engines and agents report about the jobs they hold, recorded once and only under a live lease.

The events of a spool are numbered from 1. What is recorded already is skipped, whatever the lease is
now; anything new is believed only under the job's current lease; and nothing may be missing in between.
The last number is stored in the transaction that holds the events, so a batch that was committed but
not acknowledged can be sent again. What the events mean is in `reported`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from farhand_worker.protocol import ENGINE, ProtocolViolation

from ..errors import StaleLease
from ..lifecycle import SENT_AHEAD, Ending
from .answers import Answer
from .asked import foreseen, place_asked
from .attempts import change_attempt, unheard_of
from .changes import Changes, Effects, Recorded
from .claims import Claim, settle_claims
from .completions import Completions
from .database import Database
from .endings import End, end_attempt
from .guard import Connection
from .moves import holds, load_job
from .placements import Placements
from .reported import apply_events
from .returns import Returns, end_alone, is_return
from .rows import JOBS, RUNS, Row, storable


class Report(NamedTuple):
    """A batch of events of one spool; ``events[0]`` has the number ``first``."""

    job: str
    lease: int
    source: str
    first: int
    events: list[Any]


class Reports:
    """Records reports, and ends leases that nobody reports under any more."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(
        self,
        job_id: str,
        lease: int,
        source: str,
        first: int,
        events: list[Any],
        now: float,
        worker: str | None = None,
        claims: Sequence[Claim] = (),
    ) -> Answer[Recorded]:
        """Record one batch, as `record_all` does."""
        return self.record_all([Report(job_id, lease, source, first, events)], now, worker, claims)

    def record_all(
        self,
        reports: Sequence[Report],
        now: float,
        worker: str | None = None,
        claims: Sequence[Claim] = (),
    ) -> Answer[Recorded]:
        """Record batches in their order, from ``worker`` where one is named, all of them or none.

        ``claims`` are leases to make of what they let go. The writer has it all when this returns.

        Raises, when it is awaited, `StaleLease` when one holds anything new and its ``lease`` is not the
        job's current one, or is another worker's; `ProtocolViolation` when events are missing before it, or
        it is not what a peer may send.
        """

        def record(reports: Sequence[Report]) -> Answer[Recorded]:
            return self._database.submit(
                lambda connection: _record_all(connection, reports, now, worker, claims)
            )

        def cleaned(error: Exception) -> Answer[Recorded] | None:
            if not isinstance(error, UnicodeEncodeError):
                return None  # else half a surrogate pair, which is text in Python and nowhere else
            return record([report._replace(events=list(map(storable, report.events))) for report in reports])

        return record(reports).or_else(cleaned)

    async def mark_overlap(self, worker: str, leases: list[int]) -> None:
        """These attempts of a worker ran on while no server was heard: others may have overlapped."""

        def write(connection: Connection) -> None:
            for job in unheard_of(connection, "worker = ?", (worker,)):
                if job.lease in leases:
                    change_attempt(connection, job, overlap_possible=True)
            connection.executemany(
                "UPDATE attempts SET overlap_possible = 1 WHERE lease = ? AND worker = ?",
                [(lease, worker) for lease in leases],
            )

        await self._database.write(write)

    def end(self, job_id: str, lease: int, ending: Ending, now: float) -> Answer[Changes | None]:
        """End a lease from the server's side; None when it is not the job's current one."""

        def write(connection: Connection) -> Changes | None:
            job = load_job(connection, job_id)
            if job is None or not holds(job, lease):
                return None
            effects = Effects()
            end_attempt(connection, effects, job, End(ending, now), now)
            return effects.freeze()

        return self._database.submit(write)

    async def recorded(self, job_id: str, lease: int) -> dict[str, int]:
        """The last event number recorded under a lease, by source."""
        sql = (
            "SELECT source, seq FROM recorded WHERE job = ? AND lease = ?"
            f" UNION ALL SELECT '{ENGINE}', whole FROM attempts WHERE lease = ? AND job = ? AND whole > 0"
        )
        return await self._database.read(
            lambda connection: dict(connection.execute(sql, (job_id, lease, lease, job_id)).fetchall())
        )

    async def is_current(self, job_id: str, lease: int, worker: str | None = None) -> bool:
        """Whether reports under ``lease`` are believed, of ``worker`` where one is named."""

        def read(connection: Connection) -> bool:
            job = load_job(connection, job_id)
            return job is not None and holds(job, lease) and worker in (None, job.worker)

        return await self._database.read(read)


_FIND = (
    "SELECT coalesce((SELECT seq FROM recorded WHERE job = ? AND lease = ? AND source = ?),"
    f" (SELECT whole FROM attempts WHERE lease = ? AND job = j.id)), {JOBS.of('j')}"
    f", {RUNS.of('r')} FROM jobs j JOIN runs r ON r.id = j.run WHERE j.id = ?"
)
"""How much of one of a job's spools is recorded, the job, and its run."""
_FIND_ALL = (
    "SELECT (SELECT seq FROM recorded c WHERE c.job = j.id AND c.lease = j.lease AND c.source = ?),"
    f" {JOBS.of('j')}, {RUNS.of('r')} FROM jobs j JOIN runs r ON r.id = j.run WHERE j.id IN"
)
"""The same of several jobs, under the leases that they have."""
_RECORD = (
    "INSERT INTO recorded (job, lease, source, seq) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (job, lease, source) DO UPDATE SET seq = excluded.seq"
)
_COLUMNS = JOBS.columns.split(", ")
_RUN_AT = 1 + len(_COLUMNS)
_KIND_AT, _DEPTH_AT, _LEASE_AT = map(_COLUMNS.index, ("kind", "depth", "lease"))


def _record_all(
    connection: Connection,
    reports: Sequence[Report],
    now: float,
    worker: str | None,
    claims: Sequence[Claim],
) -> Recorded:
    try:
        usual = _record_alone(connection, reports[0], now, worker, claims) if len(reports) == 1 else None
        return usual or _record_each(connection, reports, now, worker, claims)
    except (msgspec.ValidationError, OverflowError) as error:  # values of a type that no column takes
        raise ProtocolViolation(f"not an event of this protocol: {error}") from error


def _record_each(
    connection: Connection,
    reports: Sequence[Report],
    now: float,
    worker: str | None,
    claims: Sequence[Claim],
) -> Recorded:
    effects, placements = Effects(), Placements(connection)
    seqs: list[int] = []
    told: dict[tuple[Any, ...], int] = {}  # of each spool, which may come in several batches
    for kind, alike in groupby(reports, key=_usual_end):
        together = list(alike)
        ends = None if kind is None else kind(connection, effects, now)
        done = set[str]() if ends is None else _record_together(ends, together, worker)
        known = _known(connection, [report for report in together if report.job not in done])
        for report in together:
            if report.job in done:
                seqs.append(len(report.events))
            else:
                placements.flush()
                row = known.get(report[:3]) or _find(connection, report)
                before = told.get(report[:3], 0 if row is None else int(row[0] or 0))
                seq = _record(connection, effects, placements, report, row, before, now, worker)
                seqs.append(seq)
                if seq >= report.first:
                    told[report[:3]] = seq
    if told:
        connection.executemany(_RECORD, [(*spool, seq) for spool, seq in told.items()])
    leased = settle_claims(connection, effects, placements, claims, now)
    placements.flush()
    return Recorded(tuple(seqs), effects.freeze(), leased)


def _record_alone(
    connection: Connection, report: Report, now: float, worker: str | None, claims: Sequence[Claim]
) -> Recorded | None:
    """Record a report that comes by itself, of a call that begins or ends as most do; None if it is none."""
    events = report.events
    call = foreseen(report.job, events, claims)
    if call is not None:
        asked = place_asked(connection, report[:4], events[0], call, claims[0], now, worker)
        if asked is not None:
            connection.execute(_RECORD, (*report[:3], report.first))
            return Recorded((report.first,), asked[0], (asked[1],))
    elif len(events) == 2 and not claims and worker is not None and _usual_end(report) is Returns:
        changes = end_alone(connection, report[:3], events, worker)
        return None if changes is None else Recorded((2,), changes)
    return None


def _usual_end(report: Report) -> type[Returns | Completions] | None:
    """What records a report that looks like all there is of a job."""
    if report.source != ENGINE or not is_return(report.first, report.events):
        return None
    # The id of a placed call's job ends with the number of the call; who has another takes the longer way.
    return Returns if "." in report.job else Completions


def _find(connection: Connection, report: Report) -> Row | None:
    whole = report.lease if report.source == ENGINE else None
    return connection.execute(_FIND, (*report[:3], whole, report.job)).fetchone()


def _known(connection: Connection, reports: Sequence[Report]) -> dict[tuple[Any, ...], Row]:
    """What `_find` would find for each of several reports, where none of them can change that for another.

    That is for runs, and for calls which are not within one another.
    """
    ids = {report.job for report in reports}
    sources = {report.source for report in reports}
    if len(ids) < 2 or len(ids) < len(reports) or len(sources) > 1:
        return {}
    rows = connection.execute(f"{_FIND_ALL} ({', '.join('?' * len(ids))})", (*sources, *ids)).fetchall()
    kinds = {(row[1 + _KIND_AT], row[1 + _DEPTH_AT]) for row in rows}
    if len(kinds) > 1 or any(kind not in SENT_AHEAD for kind, _ in kinds):
        return {}
    return {(row[1], int(row[1 + _LEASE_AT] or 0), source): row for row in rows for source in sources}


def _record_together(ends: Returns | Completions, reports: list[Report], worker: str | None) -> set[str]:
    """Record ends that look like most; the jobs of those that were like that."""
    jobs = [report.job for report in reports]
    if len(set(jobs)) < len(jobs) or len({report.source for report in reports}) > 1:
        return set()
    known = ends.find(jobs, reports[0].source)
    done = set[str]()
    for report in reports:
        row = known.get(report.job)
        if row is not None and row[0] == report.lease and worker in (None, row[3]):
            ends.add(row, report.events)
            done.add(report.job)
    ends.flush()
    return done


def _record(
    connection: Connection,
    effects: Effects,
    placements: Placements,
    report: Report,
    row: Row | None,
    recorded: int,
    now: float,
    worker: str | None,
) -> int:
    """Record one batch, of which ``row`` was found; the last number that is recorded of its spool."""
    job_id, lease, _, first, events = report
    last = first + len(events) - 1
    if last <= recorded:
        return recorded
    if first < 1:
        raise ProtocolViolation(f"events are numbered from 1, not from {first}")
    job = None if row is None else JOBS.load(row[1:_RUN_AT])
    if row is None or job is None or not holds(job, lease) or worker not in (None, job.worker):
        raise StaleLease(f"lease {lease} of job {job_id} is not current", job=job_id, lease=lease)
    if first > recorded + 1:
        raise ProtocolViolation(f"events {recorded + 1} to {first - 1} of job {job_id} are missing")
    new = events[recorded + 1 - first :]
    apply_events(connection, effects, placements, job, row[_RUN_AT:], new, now)
    return last
