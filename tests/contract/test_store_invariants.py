"""Whatever order things happen in, what the store promises holds."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from farhand.errors import Conflict, StaleLease
from farhand.lifecycle import RUN, is_terminal
from farhand.resources import Capacity
from farhand_worker.protocol import Started, TaskBegan
from tests.harness.stores import handed

pytestmark = pytest.mark.anyio

STALE = (StaleLease, Conflict)
"""What a report or a cancellation that comes too late is answered with, and nothing else."""

EXITS = ("crashed", "timeout", "stopped", "not_started", "cancelled")


class Walk:
    """Random steps of workers, engines and people, and the invariants after each."""

    def __init__(self, story: Any, seed: int) -> None:
        self.story = story
        self.random = random.Random(seed)
        self.leases: list[Any] = []
        self.final: dict[str, Any] = {}
        self.queued: set[str] = set()
        self.ids = itertools.count()

    async def step(self) -> None:
        """One thing happens."""
        moves = [self.start, self.lease, self.report, self.give_up, self.cancel]
        try:
            await self.random.choices(moves, weights=[3, 8, 24, 3, 1])[0]()
        except STALE:
            return

    async def start(self) -> None:
        settings = {"retries": self.random.randint(0, 1), "crash_retries": self.random.randint(0, 1)}
        job = await self.story.run(**settings)
        self.queued.add(job.id)

    async def lease(self) -> None:
        for job in await self.story.store.jobs.queued():
            worker = f"w{self.random.randint(1, 2)}"
            leased = await handed(self.story.store, job.id, worker, Capacity(3), self.story.now)
            if leased is not None:
                self.queued.remove(job.id)
                self.leases.append(leased)
                await self.note(await self.story.report(leased, self.started()))
                return

    async def report(self) -> None:
        if not self.leases:
            return
        key = f"k{self.random.randint(1, 3)}"
        kept = self.random.random() < 0.7
        story = self.story
        events = [
            (story.log("line"), 1),
            (story.began(key), 3),
            (story.checkpoint(key, kept=kept), 2),
            (story.checkpoint(key, "failed", kept=kept), 2),
            (story.call(f"c{key}"), 6),
            (self.flow_began(f"f{key}"), 2),
            (story.checkpoint(f"f{key}", self.random.choice(["completed", "failed"]), kept=kept, flow={}), 2),
            (story.call(f"p{key}", flow=self.flow()), 2),
            (story.result(), 2),
            (story.result("failed", message="no"), 2),
            (story.result("cancelled"), 0.3),
            (
                story.exit(self.random.choice(["crashed", "timeout", "stopped", "not_started", "cancelled"])),
                2,
            ),
        ]
        [event] = self.random.choices([e for e, _ in events], weights=[weight for _, weight in events])
        await self.note(await story.report(self.random.choice(self.leases[-6:]), event))

    def flow(self) -> dict[str, Any]:
        return {"id": f"0inner{next(self.ids):06}", "name": "inner", "entry": "m:inner", "params": {}}

    def flow_began(self, key: str) -> Any:
        """A flow is called, by the run's own or by another that was called."""
        within = self.random.choice([None, "fk1", "pk1"])
        return TaskBegan(key, "inner", self.story.now, nested=within, flow=self.flow())

    async def give_up(self) -> None:
        if self.leases:
            changes = await self.story.end(self.random.choice(self.leases), "lost")
            if changes is not None:
                self.follow(changes)

    async def cancel(self) -> None:
        runs = (await self.story.store.runs.page(100)).items
        if runs:
            self.follow(await self.story.cancel(self.random.choice(runs).id))

    def started(self) -> Any:
        return Started(self.story.now, 1, "3.11")

    async def note(self, recorded: Any) -> None:
        self.follow(recorded.changes)

    def follow(self, changes: Any) -> None:
        """Keep the queue in memory by the changes alone, as a dispatcher does."""
        self.queued -= set(changes.dequeued)
        self.queued |= {job.id for job in changes.enqueued}

    async def check(self) -> None:
        store = self.story.store
        queued, held = await store.jobs.queued(), await store.jobs.held()
        assert {job.id for job in queued} == self.queued
        by_worker = [job.worker for job in held]
        assert all(by_worker.count(worker) <= 3 for worker in by_worker)
        assert all(job.lease and job.worker for job in held)
        assert all(job.lease is None and job.worker is None for job in queued)
        open_by_run: dict[str, list[Any]] = {}
        for job in [*queued, *held]:
            open_by_run.setdefault(job.run, []).append(job)
        for run in (await store.runs.page(1000)).items:
            jobs = open_by_run.get(run.id, [])
            if run.id in self.final:
                assert run == self.final[run.id]
            if is_terminal(RUN, run.state):
                self.final[run.id] = run
                assert run.ended_at is not None
                if run.root is not None:
                    continue
                assert all(job.kind == "call" and job.cancelling and job.lease for job in jobs)
                tasks = (await store.tasks.page(run.id)).items
                left = [task for task in tasks if task.state in ("queued", "running")]
                assert {task.placed or task.job for task in left} <= {job.id for job in jobs}
            elif run.root is not None:
                root = await store.runs.get(run.root)
                holders = [job for job in open_by_run.get(run.root, []) if job.lease and job.cancelling]
                assert not is_terminal(RUN, root.state) or holders
            else:
                assert len([job for job in jobs if job.kind == "run"]) == 1


@pytest.mark.parametrize("seed", range(20))
async def test_any_order_of_events_keeps_the_promises(story, seed):
    """B004, B063: terminal runs stay as they were, nothing open is left behind, slots are live leases."""
    walk = Walk(story, seed)
    for _ in range(120):
        await walk.step()
        await walk.check()
