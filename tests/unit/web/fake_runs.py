"""Runs, and what they are of, that live in memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec

from farhand.engine.audit import Told
from farhand.engine.calls import Calls
from farhand.engine.packing import Offer
from farhand.engine.pruner import Deleted
from farhand.engine.runs import Series
from farhand.engine.schedules import Planned
from farhand.engine.why import Why
from farhand.errors import Conflict, InvalidParameters, NotFound
from farhand.graph import Graph, of_calls, of_document
from farhand.model import (
    Artifact,
    Ask,
    Attempt,
    Fire,
    Flow,
    JobSettings,
    LeftOut,
    LogLine,
    MetricPoint,
    Page,
    Project,
    Run,
    Schedule,
    TaskRun,
    Trouble,
    Version,
)
from farhand.placement import Refusal

from .moment import T0


def make_run(id: str = "0run1", **changes: Any) -> Run:
    run = Run(id, "train", "completed", "completed", "", '{"lr":0.1}', T0, worker="server", attempt=1)
    usual = {"started_at": T0 + 1, "ended_at": T0 + 3, "result": {"enc": "json", "text": '{"a":1}'}}
    return replace(run, **usual | changes)


class FakeFlows:
    def __init__(self) -> None:
        schema = {"type": "object", "properties": {"lr": {"type": "number"}}}
        self.items = [
            Flow(
                "train",
                "default",
                "flows:train",
                "Fit it.",
                schema,
                Ask(),
                JobSettings(),
                "sha256:b",
                "sha256:f",
            )
        ]

    async def list(self) -> list[Flow]:
        return self.items

    async def get(self, name: str) -> Flow:
        for flow in self.items:
            if flow.name == name:
                return flow
        raise NotFound(f"there is no flow {name!r}")


class FakeRuns:
    def __init__(self) -> None:
        self.items: dict[str, Run] = {}
        self.lines: list[LogLine] = []
        self.task_runs: list[TaskRun] = []
        self.points: list[MetricPoint] = []
        self.saved: list[Artifact] = []
        self.fails: Exception | None = None
        self.fails_to_start: Exception | None = None

    async def start(
        self,
        flow: str,
        params: dict[str, Any],
        idempotency_key: str | None = None,
        sweep: str | None = None,
        told: Told | None = None,
    ) -> Run:
        if self.fails_to_start:
            raise self.fails_to_start
        if flow != "train":
            raise NotFound(f"there is no flow {flow!r}")
        if set(params) - {"lr"}:
            raise InvalidParameters("depth: the flow has no such parameter", field="depth")
        run = Run(f"0new{len(self.items)}", flow, "queued", "", "", "{}", T0, idempotency_key=idempotency_key)
        self.items[run.id] = run
        return run

    async def get(self, id: str) -> Run:
        if self.fails:
            raise self.fails
        if id not in self.items:
            raise NotFound(f"there is no run {id!r}")
        return self.items[id]

    async def page(
        self,
        limit: int,
        cursor: str | None = None,
        flow: str | None = None,
        state: str | None = None,
        **_: Any,
    ) -> Page[Run]:
        if self.fails:
            raise self.fails
        fit = [
            run
            for run in sorted(self.items.values(), key=lambda run: run.id, reverse=True)
            if flow in (None, run.flow) and state in (None, run.state) and (cursor is None or run.id < cursor)
        ]
        return Page(fit[:limit], fit[limit - 1].id if len(fit) > limit else None)

    async def detailed(self, id: str) -> tuple[Run, list[Attempt]]:
        """A run and its attempts."""
        return await self.get(id), await self.attempts(id)

    async def attempts(self, id: str) -> list[Attempt]:
        return [
            Attempt(7, "0job1", id, 1, "server", T0, T0 + 1, T0 + 3, "completed", host="box", python="3.12.1")
        ]

    async def cancel(self, id: str) -> Run:
        run = await self.get(id)
        if run.state != "running":
            raise Conflict(f"the run is {run.state} already")
        self.items[id] = replace(run, state="cancelling")
        return self.items[id]

    async def logs(self, id: str, after: int = 0, limit: int = 1000) -> Page[LogLine]:
        return self._after(self.lines, after, limit)

    async def metrics(self, id: str, after: int = 0, limit: int = 1000) -> Page[MetricPoint]:
        return self._after(self.points, after, limit)

    async def series(self, id: str) -> list[Series]:
        return [Series("loss", 2, 0.5, 0.5, 1.0)]

    async def retry(
        self,
        id: str,
        since: str = "failure",
        params: dict[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        source = await self.get(id)
        if source.state == "running":
            raise Conflict("the run has not ended")
        run = replace(source, id=f"0new{len(self.items)}", state="queued", retry_of=source.id, reason=since)
        self.items[run.id] = replace(run, params=msgspec.json.encode(params or {}).decode())
        return self.items[run.id]

    async def artifacts(self, id: str) -> list[Artifact]:
        return self.saved

    async def events(self, after: int = 0, limit: int = 200, run: str | None = None) -> Page[Any]:
        return Page([])

    @staticmethod
    def _after(items: list[Any], after: int, limit: int) -> Page[Any]:
        fit = [item for item in items if item.number > after]
        return Page(fit[:limit], str(fit[limit - 1].number) if len(fit) > limit else None)


class FakeSchedules:
    def __init__(self) -> None:
        spec = {"kind": "cron", "expr": "0 6 * * *", "tz": "Europe/Berlin"}
        schedule = Schedule("train.0a", "train", "default", spec, '{"lr":0.1}', created_at=T0)
        self.fired = Fire("train.0a", T0, T0 + 9, "started", "9 s late", "0run1", late=True)
        self.item = Planned(
            schedule, "active", "0 6 * * * in Europe/Berlin", "Europe/Berlin", (T0 + 60,), self.fired
        )

    async def list(self) -> list[Planned]:
        return [self.item]

    async def get(self, id: str) -> Planned:
        if not self.item.schedule.id.startswith(id):
            raise NotFound(f"there is no schedule {id!r}")
        return self.item

    async def fires(self, id: str, limit: int = 50) -> list[Fire]:
        return [self.fired]

    async def pause(self, id: str) -> Planned:
        self.item = replace(await self.get(id), state="paused", next=())
        return self.item

    async def resume(self, id: str) -> Planned:
        self.item = replace(await self.get(id), state="active", next=(T0 + 60,))
        return self.item


class FakeProjects:
    def __init__(self) -> None:
        self.items = [
            Project(
                "default", "served", "flows", "sha256:b", 10, 1,
                (Trouble("broken.py", "SyntaxError: no", "Traceback <b>"),), (LeftOut("big.bin", 2**30),), T0,
            )
        ]  # fmt: skip
        self.deployed: list[tuple[str, Offer, str]] = []

    async def list(self) -> list[Project]:
        return self.items

    async def get(self, name: str) -> Project:
        for project in self.items:
            if project.name == name:
                return project
        raise NotFound(f"there is no project {name!r}")

    async def deploy(self, name: str, offer: Offer, place: str) -> Project:
        self.deployed.append((name, offer, place))
        return Project(name, "deployed", place, offer.bundle, offer.size, offer.files)


class FakePruner:
    """Deletes from the fake runs and flows."""

    def __init__(self, runs: FakeRuns, flows: FakeFlows) -> None:
        self._runs, self._flows = runs, flows

    async def delete_run(self, id: str) -> None:
        self._runs.items.pop(id)

    async def delete_runs(self, limit: int, cursor: str | None, **_: Any) -> Deleted:
        return Deleted(len(self._runs.items), 0, None)

    async def delete_flow(self, name: str) -> int:
        await self._flows.get(name)
        return 2


class FakeExplanations:
    def __init__(self, runs: FakeRuns) -> None:
        self._runs = runs

    async def why(self, id: str) -> Why:
        run = await self._runs.get(id)
        considered = (Refusal("gpu1", "busy", "no slot is free", False),)
        return Why(
            run.id,
            run.state,
            run.reason,
            run.message,
            None,
            considered,
            [],
            await self._runs.attempts(id),
            [],
        )


class FakeGraphs:
    """The graph of what a fake run has called."""

    def __init__(self, runs: FakeRuns) -> None:
        self._runs = runs
        self.document: Any = None

    async def of(self, run: Run) -> Graph:
        """That graph."""
        if self.document is not None:
            return of_document(self.document, self._runs.task_runs, run.ended_at is not None)
        return of_calls(self._runs.task_runs)


class FakeCalls(Calls):
    """The calls that the fake runs have made."""

    def __init__(self, runs: FakeRuns) -> None:
        self._made = runs

    async def page(
        self, id: str, after: int = 0, limit: int = 200, state: str | None = None
    ) -> Page[TaskRun]:
        wanted = [task for task in self._made.task_runs if state in (None, task.state)]
        return self._made._after(wanted, after, limit)

    async def tally(self, id: str, after: int = 0) -> dict[str, int]:
        return Counter(task.state for task in self._made.task_runs if task.number > after)

    def why_waiting(self, task: TaskRun) -> str:
        return "waits for label gpu" if task.state == "queued" else ""


class FakeDeclared:
    """Declared flows: what was put, by name."""

    def __init__(self, pruner: FakePruner) -> None:
        self._pruner = pruner
        self.items: dict[str, list[Version]] = {}

    async def put(self, name: str, document: Any, who: str, expected: str | None = None) -> Version:
        """Keep a document."""
        versions = self.items.setdefault(name, [])
        kept = Version(name, len(versions) + 1, "e1", document, "sha256:b", "sha256:f", T0, who)
        versions.insert(0, kept)
        return kept

    async def latest(self, flow: str) -> Version | None:
        """The newest version."""
        return next(iter(self.items.get(flow, [])), None)

    async def versions(self, flow: str) -> list[Version]:
        """Every version."""
        return self.items.get(flow, [])

    async def of_run(self, flow: str, fingerprint: str) -> Version | None:
        """The version of a run."""
        return await self.latest(flow)

    async def delete(self, name: str, *, forced: bool = False, expected: str | None = None) -> int:
        """Delete a flow."""
        return await self._pruner.delete_flow(name)
