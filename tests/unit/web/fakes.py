"""Services that live in memory, and callers of an application over them."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from starlette.testclient import TestClient

from farhand.blobs import Blobs
from farhand.engine.audit import Told, outcome_of
from farhand.engine.blob_access import BlobAccess
from farhand.engine.bus import Bus, Notice
from farhand.engine.doctor import Finding, Report, SettingShown, WorkerClock
from farhand.engine.fitness import FlowCode
from farhand.engine.machines import Check, MachineView, ProvisionerView, Provisions
from farhand.engine.masking import Masker
from farhand.engine.packing import Offer
from farhand.engine.pruner import Deleted
from farhand.engine.roles import Identity
from farhand.engine.runs import Series
from farhand.engine.schedules import Planned
from farhand.engine.usage import Usage
from farhand.engine.why import Why
from farhand.engine.workers import Held, Past, WorkerStatus
from farhand.errors import Conflict, InvalidParameters, NotFound, NotInvited, Unauthorized
from farhand.model import (
    Artifact,
    Ask,
    Attempt,
    AuditEntry,
    Event,
    Fire,
    Flavor,
    Flow,
    Invitation,
    JobSettings,
    LeftOut,
    LogLine,
    MetricPoint,
    Page,
    Project,
    Run,
    Schedule,
    Secret,
    TaskRun,
    Token,
    Trouble,
    Variable,
    Version,
    Worker,
)
from farhand.placement import Refusal
from farhand.provisioning import Shape
from farhand.sdk.sizes import size_mb_of

T0 = 1_700_000_000.0
ADMIN, VIEWER, OPERATOR, WORKER = "admin-secret", "viewer-secret", "operator-secret", "worker-secret"


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

    async def tasks(self, id: str, after: int = 0, limit: int = 200) -> Page[TaskRun]:
        return self._after(self.task_runs, after, limit)

    def why_waiting(self, task: TaskRun) -> str:
        return "waits for label gpu" if task.state == "queued" else ""

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


class FakeWorkers:
    def __init__(self) -> None:
        self.items = [
            Worker("gpu1", "online", ("gpu",), 2, "i1", "box", "3.12.1", "0.1.0", last_seen_at=T0),
            Worker("server", "online", (), 2, "i2", "here", "3.12.1", "0.1.0", last_seen_at=T0),
        ]
        self.orders: list[Any] = []
        self.holds = (Held("j1", "0run1", "train", "train", 7, 1),)

    async def list(self) -> list[WorkerStatus]:
        return [self._status(worker) for worker in self.items]

    async def get(self, name: str) -> WorkerStatus:
        for worker in self.items:
            if worker.name == name:
                return self._status(worker)
        raise NotFound(f"there is no worker {name!r}")

    def _status(self, worker: Worker) -> WorkerStatus:
        return WorkerStatus(worker, "is there: 1 of 2 slots free", worker.drained_by != "", self.holds)

    async def past(self, name: str, since: float) -> list[Past]:
        known = name in ("gpu1", "forgotten")
        return [Past(Attempt(7, "j1", "0run1", 1, "gpu1", since + 60.0), "train")] if known else []

    async def events(self, limit: int, *_: str | None, **about: str | None) -> Page[Event]:
        if about.get("worker") not in (None, "gpu1", "forgotten"):
            return Page([], None)
        return Page([Event(1, T0, "worker.attached", "gpu1 attached from box", None, "gpu1")], None)

    async def drain(self, name: str, by: str) -> bool:
        return await self._order(name, "drain", by)

    async def resume(self, name: str, by: str) -> bool:
        return await self._order(name, "resume", by)

    async def set_slots(self, name: str, slots: int) -> None:
        await self._order(name, "slots", slots)

    async def forget(self, name: str, settle: bool = False) -> int:
        await self._order(name, "forget", settle)
        return int(settle)

    async def _order(self, name: str, *order: Any) -> bool:
        await self.get(name)
        self.orders.append((name, *order))
        return True


class FakeTokens:
    def __init__(self) -> None:
        self.items: dict[str, Token] = {}
        self.generation = "first"
        self.revoked: set[str] = set()
        self.watchers: list[asyncio.Event] = []

    async def create(
        self, name: str, role: str, labels: tuple[str, ...], expires_s: float
    ) -> tuple[str, Token]:
        token = Token(f"jti{len(self.items)}", name, role, labels, T0, T0 + expires_s)
        self.items[token.jti] = token
        return f"text-of-{token.jti}", token

    async def list(self) -> list[Token]:
        return list(self.items.values())

    async def revoke(self, jti: str) -> bool:
        if jti not in self.items:
            raise NotFound(f"there is no token {jti}")
        token = self.items[jti]
        self.items[jti] = replace(token, revoked_at=T0)
        return token.revoked_at is None

    async def rotate_key(self) -> int:
        self.generation += "x"
        for event in self.watchers:
            event.set()
        return len(self.items)

    async def verify(self, text: str, address: str = "", session: str = "") -> Identity:
        role = text.removesuffix("-secret")
        if role == text:
            raise Unauthorized("the token is not one of this server's")
        jti = "" if role == "admin" else f"jti-of-{role}"
        return Identity(role, "gpu1" if role == "worker" else role, jti=jti)

    async def confirm(self, identity: Identity, address: str = "") -> Identity:
        if identity.jti in self.revoked:
            raise Unauthorized("the token of this session has been revoked")
        return identity

    @contextmanager
    def watch(self, identity: Identity) -> Iterator[asyncio.Event]:
        event = asyncio.Event()
        self.watchers.append(event)
        yield event


class FakeInvitations:
    def __init__(self, tokens: FakeTokens) -> None:
        self.tokens = tokens
        self.open: dict[str, Invitation] = {}

    async def create(
        self, name: str, labels: tuple[str, ...], token_s: float, valid_s: float
    ) -> tuple[str, Invitation]:
        made = Invitation(f"inv{len(self.open)}", "hash", name, labels, token_s, T0, T0 + valid_s)
        self.open[f"code-of-{name}"] = made
        return f"code-of-{name}", made

    async def check(self, code: str) -> Invitation:
        if code not in self.open:
            raise NotInvited
        return self.open[code]

    async def redeem(self, code: str, address: str) -> tuple[str, Token]:
        made = self.open.pop(code, None)
        if made is None:
            raise NotInvited
        return await self.tokens.create(made.name, "worker", made.labels, made.token_s)


class FakeAudit:
    def __init__(self) -> None:
        self.items: list[AuditEntry] = []

    async def add(
        self,
        who: Identity,
        address: str,
        action: str,
        subject: str = "",
        status: int = 200,
        details: Any = None,
    ) -> None:
        self.items.append(self.entry(who, address, action, subject, status, details))

    def entry(
        self,
        who: Identity,
        address: str,
        action: str,
        subject: str = "",
        status: int = 200,
        details: Any = None,
    ) -> AuditEntry:
        n = len(self.items) + 1
        outcome = outcome_of(status)
        return AuditEntry(
            n, T0, who.role, who.name, who.jti, address, action, subject, outcome, status, details or {}
        )

    async def page(self, limit: int, cursor: Any, actor: Any, action: Any) -> Page[AuditEntry]:
        fit = [e for e in self.items if actor in (None, e.actor) and action in (None, e.action)]
        return Page(fit[::-1][:limit])


class FakeSecrets:
    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    async def list(self) -> list[Secret]:
        return [Secret(name, T0, T0, "admin") for name in self.values]

    async def set(self, name: str, value: str, by: str) -> bool:
        created = name not in self.values
        self.values[name] = value
        return created

    async def delete(self, name: str) -> None:
        if self.values.pop(name, None) is None:
            raise NotFound(f"there is no secret {name!r}")


class FakeVariables:
    def __init__(self) -> None:
        self.items: dict[str, Variable] = {}

    async def list(self) -> list[Variable]:
        return list(self.items.values())

    async def get(self, name: str) -> Variable:
        if name not in self.items:
            raise NotFound(f"there is no variable {name!r}")
        return self.items[name]

    async def set(self, name: str, value: Any, by: str) -> bool:
        created = name not in self.items
        self.items[name] = Variable(name, json.dumps(value), T0, by)
        return created

    async def delete(self, name: str) -> None:
        if self.items.pop(name, None) is None:
            raise NotFound(f"there is no variable {name!r}")


class FakeResources:
    def usage(self) -> Usage:
        return Usage([], [], 0, [])


class FakeMachines:
    """One provisioner that was asked for a machine, and works."""

    async def provisions(self) -> Provisions:
        shape = Shape("hpc", "gpu-small", ("gpu",), cpus=4, gpus=1, ram_mb=16_000)
        hpc = ProvisionerView("hpc", "slurm", "me@login", (shape,), "cancel", 900.0, 300.0)
        words = "requested hpc/gpu-small, Slurm job 4242, PENDING: Priority"
        asked = MachineView(
            "hpc-gpu-small-1f", "hpc", "gpu-small", "pending", "Slurm job 4242", "PENDING: Priority", words,
            T0, 61.0, 1, None, None,
        )  # fmt: skip
        return Provisions([hpc], [asked], "provisioners.json is no JSON")

    async def test(self, name: str, submit: bool) -> list[Check]:
        if name != "hpc":
            raise NotFound(f"there is no provisioner {name!r}; there are hpc")
        return [Check("run a command on me@login", True, "")]


class FakeFlavors:
    def __init__(self) -> None:
        self.items: dict[str, Flavor] = {}

    async def list(self) -> list[Flavor]:
        return list(self.items.values())

    async def set(self, name: str, cpus: int | None, gpus: int | None, ram: Any, by: str) -> bool:
        created = name not in self.items
        self.items[name] = Flavor(name, cpus, gpus, size_mb_of(ram) if ram else None, T0, by)
        return created

    async def delete(self, name: str) -> None:
        if self.items.pop(name, None) is None:
            raise NotFound(f"there is no flavor {name!r}")


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


class FakeBackup:
    def check(self) -> None:
        pass

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[Iterator[bytes]]:
        yield iter([b"a ", b"tar"])


class FakeFleet:
    def __init__(self) -> None:
        self.holders: dict[str, Any] = {}

    def holder(self, job: str) -> Any:
        return self.holders.get(job)


class ThreadedBus(Bus):
    """A bus that a test may publish on from outside the server's loop."""

    def __init__(self) -> None:
        super().__init__()
        self.loop: asyncio.AbstractEventLoop | None = None

    def subscribe(self) -> Any:
        self.loop = asyncio.get_running_loop()
        return super().subscribe()


class FakeLeases:
    """Of a store, what says which leases are current and what may be read under them."""

    def __init__(self) -> None:
        self.current: set[tuple[str, int]] = set()
        self.readable: set[str] = set()

    async def is_current(self, job: str, lease: int, worker: str) -> bool:
        return (job, lease) in self.current

    async def may_read(self, job: str, lease: int, digest: str) -> bool:
        return (job, lease) in self.current and digest in self.readable


class FakeImports:
    """No import check is under way."""

    def owns(self, job: str) -> bool:
        return False


class FakeFitness:
    """Workers whose code is that of the server."""

    def drift(self, worker: str) -> str:
        return ""

    def code_of(self, worker: str, flows: list[Flow]) -> list[FlowCode]:
        return [FlowCode(flow.name, flow.fingerprint, "ready", "") for flow in flows]


class FakeServices:
    def __init__(self, directory: Path) -> None:
        self.flows = FakeFlows()
        self.runs = FakeRuns()
        self.schedules = FakeSchedules()
        self.projects = FakeProjects()
        self.workers = self.operations = FakeWorkers()
        self.fitness = FakeFitness()
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


def problem_of(answer: Any) -> tuple[int, str]:
    """The status and code of an error, which must be a problem document with all its members."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    problem = answer.json()
    assert problem["status"] == answer.status_code
    assert problem["title"]
    assert problem["detail"]
    return answer.status_code, problem["code"]


def caller(app: Any, token: str | None = None, **headers: str) -> TestClient:
    """Calls with a token, or with none."""
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    return TestClient(app, base_url="http://127.0.0.1:8420", headers=headers, raise_server_exceptions=False)


def signed_in(app: Any) -> TestClient:
    """A browser that has opened a sign-in link."""
    browser = caller(app)
    answer = browser.get(f"/{app.state.sessions.link()}")
    assert answer.url.path == "/"
    return browser


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
