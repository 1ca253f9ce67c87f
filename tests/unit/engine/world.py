"""The services around a real store, without sockets and loops, for tests that drive them step by step."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from farhand.engine.attachment import Attached, Attachments, Credential
from farhand.engine.bus import Bus
from farhand.engine.consequences import Consequences
from farhand.engine.dispatcher import Dispatcher
from farhand.engine.fitness import Fitness
from farhand.engine.fleet import Fleet
from farhand.engine.hosting import Hosting
from farhand.engine.importchecks import ImportChecks
from farhand.engine.member import Member
from farhand.engine.operations import Operations
from farhand.engine.queue import Queue
from farhand.engine.reports import Reports
from farhand.engine.rescuer import Rescuer
from farhand.engine.service import Wakeup
from farhand.engine.streams import Streams
from farhand.engine.worker_events import WorkerEvents
from farhand.model import Job, Run
from farhand.sdk.ids import new_id
from farhand.store import Store
from farhand.store.answers import Answer, failed
from farhand_worker import protocol
from tests.harness.stores import opened
from tests.unit.engine.records import FLOW, FakeLink, a_hello, a_job, a_run

TIMES = protocol.Times()


class World:
    """Everything between the gateway and the store."""

    def __init__(self, store: Store, times: protocol.Times = TIMES) -> None:
        self.store = store
        self.fleet = Fleet(times)
        self.queue = Queue(self.fleet.kin_of)
        self.bus = Bus()
        self.wakeup = Wakeup()
        self.imports = ImportChecks(self.fleet, self.wakeup, lambda _: True)
        self.fitness = Fitness(self.fleet, self.imports, self.queue, self.wakeup)
        self.consequences = Consequences(self.queue, self.fleet, self.bus, self.wakeup, self.fitness)
        self.dispatcher = Dispatcher(
            store, self.queue, self.fleet, self.consequences, self.bus, self.wakeup, self.fitness
        )
        self.worker_events = WorkerEvents(store, self.bus)
        self.rescuer = Rescuer(store, self.fleet, self.consequences, self.worker_events)
        self.attachments = Attachments(
            store,
            self.fleet,
            self.rescuer,
            self.consequences,
            self.bus,
            self.wakeup,
            self.fitness,
            self.worker_events,
        )
        self.operations = Operations(store, self.fleet, self.rescuer, self.worker_events, self.wakeup)
        self.reports = Reports(store, self.consequences, self.fleet, self.imports, dispatcher=self.dispatcher)
        self.hosting = Hosting(store, self.fleet, self.queue, self.consequences, self.bus)
        self.streams = Streams(store, self.bus, self.fleet, self.wakeup)
        self.blocked: asyncio.Event | None = None
        self._waiting: list[asyncio.Task[None]] = []

    # ------------------------------------------------------------ runs and jobs

    async def start_run(self, **fields: Any) -> Job:
        """A new run, queued; returns its job."""
        run = a_run(new_id(), created_at=1.0)
        job = a_job(new_id(), run=run.id, **{"queued_at": time.time(), **fields})
        run, job, _ = await self.store.runs.create(run, job)
        self.consequences.follow_start(run, job)
        return job

    async def hand_over(self) -> None:
        """Let the dispatcher look once, and wait for what it handed over."""
        self.dispatcher.holding_back = False
        self.dispatcher._pass()
        await self.dispatcher.settle()

    async def report(self, job: Job, *events: Any, first: int = 1, source: str = "engine") -> int:
        """What the job's engine says."""
        lines = [[event.kind, msgspec.to_builtins(event)] for event in events]
        event = protocol.Event(job.id, job.lease or 0, source, first, lines)
        return (await self.reports.record_all([event], job.worker or "box"))[0]

    async def started(self, job: Job) -> Job:
        """The job after its user code began."""
        await self.report(job, protocol.Started(2.0, 1, "3.11"))
        return await self.job(job)

    async def job(self, job: Job) -> Job:
        """The job as the store has it now."""
        found = await self.store.jobs.get(job.id)
        assert found is not None
        return found

    async def run_of(self, job: Job) -> Run:
        """The job's run as the store has it now."""
        found = await self.store.runs.get(job.run)
        assert found is not None
        return found

    async def event_kinds(self, prefix: str = "worker.") -> list[str]:
        """The kinds of what was written to the event log."""
        page = await self.store.events.page(limit=1000)
        return [event.kind for event in page.items if event.kind.startswith(prefix)]

    # ------------------------------------------------------------ workers

    async def attach(
        self, hello: protocol.Hello | None = None, labels: tuple[str, ...] = (), link: Any = None
    ) -> tuple[Attached | protocol.Refused, FakeLink]:
        """A worker says hello, and is welcomed unless it is refused."""
        hello = hello or a_hello()
        link = link or FakeLink()
        answer = await self.attachments.attach(hello, Credential(hello.name, labels, "jti"), link, "10.0.0.1")
        if isinstance(answer, Attached):
            self.attachments.welcomed(answer.member, link)
        return answer, link

    async def worker_with_job(self, **fields: Any) -> tuple[Member, FakeLink, Job]:
        """An attached worker that was handed a job."""
        _, link = await self.attach()
        job = await self.start_run(**fields)
        await self.hand_over()
        return self.fleet.member("box"), link, await self.job(job)

    def held(self, job: Job, **fields: Any) -> dict[str, Any]:
        """How an agent lists a job in its hello."""
        return protocol.as_dict(protocol.Held(job.id, job.lease or 0, **fields))

    async def look(self) -> None:
        """Let the rescuer look once."""
        for member in list(self.fleet):
            await self.rescuer._examine(member)

    # ------------------------------------------------------------ the store's moods

    def block_writes(self) -> asyncio.Event:
        """From now on every write waits for the event that is returned."""
        submit, go_on = self.store.database.submit, asyncio.Event()

        def waiting(operation: Any) -> Answer[Any]:
            answer = Answer[Any]()

            async def later() -> None:
                await go_on.wait()
                answer.become(submit(operation))

            self._waiting.append(asyncio.create_task(later()))
            return answer

        self.store.database.submit = waiting  # type: ignore[method-assign]
        return go_on

    def fail_writes(self, error: Exception, times: int = 1) -> list[int]:
        """The next writes fail with ``error``; the list grows by one entry for each."""
        submit, failures = self.store.database.submit, list[int]()

        def failing(operation: Any) -> Answer[Any]:
            if len(failures) < times:
                failures.append(len(failures))
                return failed(error)
            return submit(operation)

        self.store.database.submit = failing  # type: ignore[method-assign]
        return failures


@asynccontextmanager
async def a_store(home: Path) -> AsyncIterator[Store]:
    """A real store in ``home`` that knows one flow."""
    store = await opened(home / "farhand.db")
    try:
        await store.flows.replace("default", [replace(FLOW, updated_at=1.0)], 1.0)
        yield store
    finally:
        await store.close()
