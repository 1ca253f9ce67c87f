"""One suite for every dialect of the store."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from farhand.lifecycle import Ending
from farhand.model import Ask, Job, JobSettings, Run, TaskRun
from farhand.resources import Capacity
from farhand.store import Changes, Leased, Recorded, Store
from farhand_worker import protocol
from tests.harness.stores import handed, opened
from tests.lab import postgresql
from tests.optional import need

OpenStore = Callable[[], Awaitable[Store]]


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of an empty database; none for SQLite, which lies in the home."""
    if request.param == "sqlite":
        yield ""
        return
    need("PostgreSQL")
    with postgresql.lent() as url:
        yield url


@pytest.fixture
def open_store(database_url: str, tmp_path: Path) -> OpenStore:
    """Opens the test's one store; closed and opened again it has what it had."""

    async def opening() -> Store:
        return await opened(tmp_path / "home" / "store.db", database_url)

    return opening


@pytest.fixture
async def store(open_store: OpenStore) -> AsyncIterator[Store]:
    """An empty store, open."""
    store = await open_store()
    yield store
    await store.close()


@pytest.fixture
def story(store: Store) -> Story:
    """The store with a clock and the steps that most tests begin with."""
    return Story(store)


@pytest.fixture
def tell() -> type[Story]:
    """Makes a story of a store that the test opened itself."""
    return Story


class Story:
    """Writes the common first chapters: a run is queued, leased, started; events are reported."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = 1000.0
        self.sent: dict[tuple[str, int, str], int] = {}
        self._ids = itertools.count(1)

    async def run(self, flow: str = "etl", key: str | None = None, **settings: Any) -> Job:
        """A queued run's job."""
        self.now += 1
        run_id = f"run{next(self._ids):04}"
        run = Run(
            run_id, flow, "queued", "new", "", '{"a":1}', self.now, bundle="sha256:b", idempotency_key=key
        )
        job = Job(
            run_id.replace("run", "job"), run_id, "run", "queued", flow, "m:f",
            {"enc": "json", "text": "{}"}, "sha256:b",
            Ask(labels=("gpu",)), JobSettings(**settings), self.now, self.now,
        )  # fmt: skip
        _, job, _ = await self.store.runs.create(run, job)
        return job

    async def lease(self, job: Job | str, worker: str = "w1", parallel: int = 100) -> Leased:
        """The job, handed to a worker."""
        self.now += 1
        job_id = job if isinstance(job, str) else job.id
        leased = await handed(self.store, job_id, worker, Capacity(parallel), self.now)
        assert leased is not None
        return leased

    async def running(self, job: Job | str | None = None, worker: str = "w1", **settings: Any) -> Leased:
        """A job whose user code has begun."""
        leased = await self.lease(job if job is not None else await self.run(**settings), worker)
        await self.report(leased, protocol.Started(self.now, 42, "3.11.7", "host1"))
        return leased

    async def report(self, leased: Leased, *events: Any, source: str = protocol.ENGINE) -> Recorded:
        """The next events of a spool."""
        self.now += 1
        job, lease = leased.job.id, leased.job.lease or 0
        first = self.sent.get((job, lease, source), 0) + 1
        recorded = await self.store.reports.record(job, lease, source, first, list(events), self.now)
        self.sent[job, lease, source] = recorded.seq
        return recorded

    async def end(self, leased: Leased, state: str, reason: str = "", message: str = "") -> Changes | None:
        """The server ends a lease."""
        self.now += 1
        ending = Ending(state, reason, message)
        return await self.store.reports.end(leased.job.id, leased.job.lease or 0, ending, self.now)

    async def cancel(self, run_id: str) -> Changes:
        """A person cancels a run."""
        self.now += 1
        return await self.store.runs.cancel(run_id, self.now)

    async def state(self, run_id: str) -> str:
        """The run's state."""
        run = await self.store.runs.get(run_id)
        assert run is not None
        return run.state

    async def job(self, job_id: str) -> Job:
        """The job as it is now."""
        job = await self.store.jobs.get(job_id)
        assert job is not None
        return job

    async def task(self, run_id: str, key: str) -> TaskRun:
        """One task run."""
        page = await self.store.tasks.page(run_id, limit=10_000)
        return next(task for task in page.items if task.key == key)

    def result(self, state: str = "completed", **fields: Any) -> protocol.Result:
        """The end of user code."""
        if state == "completed":
            fields.setdefault("value", {"enc": "json", "text": "1"})
        return protocol.Result(state, self.now, **fields)

    def exit(self, reason: str, message: str = "signal 9") -> protocol.Exit:
        """The end of an engine without a result."""
        return protocol.Exit(self.now, reason, message)

    def log(self, text: str) -> protocol.Log:
        """One line."""
        return protocol.Log(self.now, text)

    def began(self, key: str) -> protocol.TaskBegan:
        """A call begins in the engine."""
        return protocol.TaskBegan(key, f"task-{key}", self.now)

    def checkpoint(self, key: str, state: str = "completed", **fields: Any) -> protocol.Checkpoint:
        """A call ends in the engine."""
        if state == "completed":
            fields.setdefault("value", {"enc": "json", "text": f'"{key}"'})
        return protocol.Checkpoint(key, f"task-{key}", state, self.now - 1, self.now, **fields)

    def call(self, key: str, **fields: Any) -> protocol.Call:
        """A call placed on another machine."""
        ask = {"labels": ["gpu"], "policy": "require", "runs_on": "any"}
        args = {"enc": "json", "text": "[[],{}]"}
        return protocol.Call(key, f"task-{key}", "m:t", args, ask, self.now, **fields)
