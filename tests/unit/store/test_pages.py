"""What a placed call and a run write: so many statements, and so many pages of SQLite's log.

Each page is a leaf of a table or of an index; one that is in the way of all work has to be worth it.
"""

from __future__ import annotations

import statistics
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from farhand.model import Ask, Job, JobSettings, Run
from farhand.resources import Capacity
from farhand.sdk.ids import new_id
from farhand.store import Store
from farhand.store.calls import called_by
from farhand.store.claims import Claim
from farhand.store.reports import Report
from farhand_worker import protocol
from tests.harness.stores import opened

pytestmark = pytest.mark.anyio

CALLS = 60
PLACED_PAGES, PLACED_STATEMENTS = 11, 5
ENDED_PAGES, ENDED_STATEMENTS = 7, 3
BEGUN_PAGES, BEGUN_STATEMENTS = 15, 4
RUN_ENDED_PAGES, RUN_ENDED_STATEMENTS = 16, 5
FRAME = 24 + 4096
CODE, FLOW = "sha256:" + "b" * 64, "sha256:" + "f" * 64


@dataclass
class Counted:
    """Counts, commit by commit, what the store's writer does for each kind of work."""

    store: Store
    log: Path
    now: float = 1_700_000_000.0
    pages: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    statements: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    _ran: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        writing = self.store.database._writing
        writing.execute("PRAGMA wal_autocheckpoint = 0")
        writing.set_trace_callback(self._ran.append)

    async def count(self, what: str, work: Callable[[], Any]) -> Any:
        """What ``work`` gives, which the writer has as soon as it is called."""
        self.now += 0.01
        before = self.log.stat().st_size
        self._ran.clear()
        value = await work()
        self.pages.setdefault(what, []).append((self.log.stat().st_size - before) // FRAME)
        self.statements.setdefault(what, []).append(len(self._ran) - 2)  # less BEGIN and COMMIT
        return value

    async def report(self, what: str, job: Job, first: int, events: list[Any], *claims: Claim) -> Any:
        report = Report(job.id, job.lease or 0, "engine", first, events)
        record_all = self.store.reports.record_all
        return await self.count(what, lambda: record_all([report], self.now, job.worker, claims))

    async def begin(self, what: str) -> Job:
        run = new_id(self.now)
        record = Run(run, "f", "queued", "new", "", "{}", self.now, bundle=CODE, fingerprint=FLOW)
        job = Job(
            new_id(self.now), run, "run", "queued", "f", "m:f", {"enc": "json", "text": "{}"}, CODE, Ask(),
            JobSettings(), self.now, self.now, queued_at=self.now, fingerprint=FLOW,
        )  # fmt: skip
        claim = Claim("server", Capacity(2), job.id)
        leased = await self.count(what, lambda: self.store.runs.start(record, job, claim))
        assert leased is not None
        return leased.job

    def started(self) -> protocol.Started:
        return protocol.Started(self.now, 42, "3.11.7", "host")

    def result(self) -> protocol.Result:
        return protocol.Result("completed", self.now, value={"enc": "json", "text": "1"})


@pytest.fixture
async def counted(tmp_path: Path) -> AsyncIterator[Counted]:
    store = await opened(tmp_path / "store.db")
    yield Counted(store, tmp_path / "store.db-wal")
    await store.close()


async def test_a_placed_call_writes_a_bounded_number_of_pages_by_few_statements(counted: Counted) -> None:
    parent = await counted.begin("run")
    await counted.report("started", parent, 1, [counted.started()])
    for number in range(CALLS):
        key = f"{number * 7919 % 65536:04x}" * 8
        call = protocol.Call(key, "t", "m:t", {"enc": "json", "text": "[[],{}]"}, {}, counted.now)
        foreseen = called_by(parent, call, "", counted.now)
        claim = Claim("w", Capacity(1), key=key, run=parent.run, call=foreseen)
        recorded = await counted.report("placed", parent, number + 2, [call], claim)
        (leased,) = recorded.leased
        await counted.report("ended", leased.job, 1, [counted.started(), counted.result()])
    assert statistics.mean(counted.pages["placed"]) < PLACED_PAGES
    assert statistics.mean(counted.pages["ended"]) < ENDED_PAGES
    assert statistics.median(counted.statements["placed"]) <= PLACED_STATEMENTS
    assert statistics.median(counted.statements["ended"]) <= ENDED_STATEMENTS


async def test_a_run_writes_a_bounded_number_of_pages_by_few_statements(counted: Counted) -> None:
    for _ in range(CALLS):
        job = await counted.begin("begun")
        await counted.report("ended", job, 1, [counted.started(), counted.result()])
    assert statistics.mean(counted.pages["begun"]) < BEGUN_PAGES
    assert statistics.mean(counted.pages["ended"]) < RUN_ENDED_PAGES
    assert statistics.median(counted.statements["begun"]) <= BEGUN_STATEMENTS
    assert statistics.median(counted.statements["ended"]) <= RUN_ENDED_STATEMENTS
