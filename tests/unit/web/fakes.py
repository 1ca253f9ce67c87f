"""Services that live in memory: all of them together, and whoever calls an application over them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from farhand.blobs import Blobs
from farhand.engine.blob_access import BlobAccess
from farhand.engine.bus import Bus, Notice
from farhand.engine.doctor import Finding, Report, SettingShown, WorkerClock
from farhand.engine.masking import Masker

from .callers import caller, digest_of, problem_of, signed_in
from .fake_access import FakeAudit, FakeInvitations, FakeSecrets, FakeTokens, FakeVariables
from .fake_fleet import (
    FakeFitness,
    FakeFlavors,
    FakeFleet,
    FakeImports,
    FakeLeases,
    FakeMachines,
    FakeResources,
    FakeWorkers,
)
from .fake_hosting import FakeHosting
from .fake_runs import (
    FakeCalls,
    FakeDeclared,
    FakeExplanations,
    FakeFlows,
    FakeGraphs,
    FakeProjects,
    FakePruner,
    FakeRuns,
    FakeSchedules,
    make_run,
)
from .moment import T0

__all__ = [
    "ADMIN",
    "OPERATOR",
    "T0",
    "VIEWER",
    "WORKER",
    "FakeServices",
    "FakeTokens",
    "ThreadedBus",
    "caller",
    "digest_of",
    "make_run",
    "problem_of",
    "signed_in",
]


ADMIN, VIEWER, OPERATOR, WORKER = "admin-secret", "viewer-secret", "operator-secret", "worker-secret"


class FakeDoctor:
    def __init__(self) -> None:
        self.findings: list[Finding] = []

    async def report(self) -> Report:
        settings = [SettingShown("port", "8420", "default")]
        store = {
            "dialect": "sqlite",
            "version": "3",
            "where": "store.db",
            "details": {"size": 1},
            "problems": (),
        }
        disk = {"home": "home", "total": 2**40, "free": 2**39}
        capacity = {"cores": 2, "slots": 1}
        clocks = [WorkerClock("gpu1", "online", 0.01)]
        return Report(T0, settings, {"farhand": "0"}, store, disk, capacity, clocks, self.findings)


class FakeBackup:
    def check(self) -> None:
        pass

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[Iterator[bytes]]:
        yield iter([b"a ", b"tar"])


class ThreadedBus(Bus):
    """A bus that a test may publish on from outside the server's loop."""

    def __init__(self) -> None:
        super().__init__()
        self.loop: asyncio.AbstractEventLoop | None = None

    def subscribe(self) -> Any:
        self.loop = asyncio.get_running_loop()
        return super().subscribe()


class FakeServices:
    def __init__(self, directory: Path) -> None:
        self.flows = FakeFlows()
        self.runs = FakeRuns()
        self.calls = FakeCalls(self.runs)
        self.schedules = FakeSchedules()
        self.projects = FakeProjects()
        self.workers = self.operations = FakeWorkers()
        self.fitness = FakeFitness()
        self.hosting = FakeHosting()
        self.tokens = FakeTokens()
        self.invitations = FakeInvitations(self.tokens)
        self.audit = FakeAudit()
        self.masker = Masker()
        self.secrets = FakeSecrets()
        self.variables = FakeVariables()
        self.flavors = FakeFlavors()
        self.resources = FakeResources()
        self.machines = FakeMachines()
        self.doctor = FakeDoctor()
        self.fleet = FakeFleet()
        self.pruner = FakePruner(self.runs, self.flows)
        self.declared = FakeDeclared(self.pruner)
        self.graphs = FakeGraphs(self.runs)
        self.explanations = FakeExplanations(self.runs)
        self.backup = FakeBackup()
        self.leases = FakeLeases()
        self.blob_access = BlobAccess(self.leases, self.leases, self.fleet, FakeImports())
        self.bus = ThreadedBus()
        self.blobs = Blobs(directory / "blobs")
        self.ready = True
        self.runtime = self.blobs.put_bytes(b"PK the runtime")

    def publish(self, notice: Notice) -> None:
        """Publish a notice to whoever streams from a server in another thread."""
        assert self.bus.loop is not None, "nobody streams"
        self.bus.loop.call_soon_threadsafe(self.bus.publish, notice)
