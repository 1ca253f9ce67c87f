"""All services of a server, put together; `start` and `stop` in the one order that is right."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from farhand_worker.protocol import Times

from ..blobs import Blobs
from ..model import LOCAL_WORKER
from ..store import Store
from . import runtime
from .attachment import Attachments, inventory_of
from .audit import Audit
from .backup import Backup
from .blob_access import BlobAccess
from .bus import Bus
from .choosing import RESERVE_AFTER_S
from .consequences import Consequences
from .declared import Declared
from .dispatcher import Dispatcher
from .doctor import Doctor
from .fitness import Fitness, checked_out
from .flavors import Flavors
from .fleet import Fleet
from .flows import Flows
from .importchecks import AGAIN_S, TIMEOUT_S, ImportChecks
from .inbox import Inbox
from .invitations import Invitations
from .machines import Machines
from .masking import Masker
from .needs import Needs
from .operations import Operations
from .overdue import Overdue
from .projects import Projects
from .pruner import Pruner
from .queue import Queue
from .reports import Reports
from .rescuer import Rescuer
from .runs import Runs
from .scheduler import Scheduler
from .schedules import Schedules
from .secrets import Secrets
from .service import Wakeup
from .tokens import Tokens
from .usage import Resources
from .variables import Variables
from .vitals import Vitals
from .why import Explanations
from .worker_events import WorkerEvents
from .workers import Workers

log = logging.getLogger("farhand")


class Services:
    """What the web and the gateway are given."""

    def __init__(
        self,
        store: Store,
        home: Path,
        times: Times,
        environment: Mapping[str, str] | None = None,
        keep_s: float = 0.0,
        keep_audit_s: float = 0.0,
        reserve_after_s: float = RESERVE_AFTER_S,
        import_timeout_s: float = TIMEOUT_S,
        import_again_s: float = AGAIN_S,
    ) -> None:
        self.store = store
        self.times = times
        self.blobs = Blobs(home / "blobs")
        self.masker = Masker()
        self.bus = Bus()
        self.fleet = Fleet(times)
        self.queue = Queue(self.fleet.kin_of)
        wakeup = Wakeup()
        self.imports = ImportChecks(self.fleet, wakeup, self.blobs.has, import_timeout_s, import_again_s)
        self.fitness = Fitness(self.fleet, self.imports, self.queue, wakeup)
        consequences = Consequences(self.queue, self.fleet, self.bus, wakeup, self.fitness)
        self.vitals = Vitals(self.bus)
        self.worker_events = WorkerEvents(store, self.bus)
        self.rescuer = Rescuer(store, self.fleet, consequences, self.worker_events)
        self.operations = Operations(store, self.fleet, self.rescuer, self.worker_events, wakeup)
        self.tokens = Tokens(store, home, environment, on_end=self.operations.expel)
        self.machines = Machines(store, self.tokens, self.fleet, self.queue, self.bus, wakeup)
        self.dispatcher = Dispatcher(
            store,
            self.queue,
            self.fleet,
            consequences,
            self.bus,
            wakeup,
            self.fitness,
            self.vitals.handed_over,
            reserve_after_s,
            self.machines,
        )
        self.attachments = Attachments(
            store,
            self.fleet,
            self.rescuer,
            consequences,
            self.bus,
            wakeup,
            self.fitness,
            self.worker_events,
        )
        self.overdue = Overdue(store, self.fleet, consequences)
        self.reports = Reports(
            store, consequences, self.fleet, self.imports, self.overdue.look, self.dispatcher
        )
        self.inbox = Inbox(home, store, self.blobs, self.bus)
        self.flows = Flows(store)
        self.blob_access = BlobAccess(self.reports, store.run_blobs, self.fleet, self.imports)
        self.runs = Runs(store, self.queue, self.fleet, consequences, self.masker, self.dispatcher)
        self.resources = Resources(self.fleet, self.queue, self.machines.outstanding)
        self.explanations = Explanations(self.runs, self.queue)
        self.scheduler = Scheduler(store, self.runs, consequences, self.bus)
        self.projects = Projects(store, self.blobs, self.scheduler, self.bus, self.fitness.offered)
        self.schedules = Schedules(store, self.scheduler, self.bus)
        self.workers = Workers(store, self.fleet)
        self.invitations = Invitations(store, self.tokens)
        self.audit = Audit(store, self.masker)
        self.secrets = Secrets(store, home, self.masker, self.audit, environment)
        self.variables = Variables(store)
        self.flavors = Flavors(store)
        self.needs = Needs(store, self.secrets, self.variables)
        self.doctor = Doctor(store, home, self.fleet, self.secrets)
        self.ready = False
        self.limits: dict[str, int] = {}
        self.runtime = self.blobs.put_bytes(runtime.build())
        self.pruner = Pruner(
            store, self.blobs, lambda: [self.runtime], keep_s=keep_s, keep_audit_s=keep_audit_s
        )
        self.declared = Declared(store, self.blobs, self.runs, self.pruner, self.bus)
        self.backup = Backup(store, home, self.pruner)

    async def start(self) -> None:
        """Read from the store what is queued and who holds what; begin the loops. The socket listens."""
        for name in await self.secrets.load():
            log.error("the secret %r was sealed with another key; put the key back, or set it anew", name)
        for job in await self.store.jobs.held():
            if job.lease is not None:
                self.fleet.hold(self.fleet.member(job.worker or LOCAL_WORKER), job, job.lease)
        for job in await self.store.jobs.queued():
            self.queue.add(self.queue.steady.of(job), self.queue.steady.now())
        for worker in await self.store.workers.list():
            if worker.state != "offline":
                self.fleet.member(worker.name)
        for member in self.fleet:
            known = await self.store.workers.get(member.name)
            if known is not None:
                member.labels, member.parallel = frozenset(known.labels), known.parallel
                member.instance, member.host, member.boot_id = known.instance, known.host, known.boot_id
                member.python, member.environment = known.python, known.environment
                member.checkout, member.git = known.checkout, known.git
                member.jti, member.drained_by = known.jti, known.drained_by
                member.inventory = inventory_of(known.reported.get("inventory"))
                member.service_host = known.reported.get("service_host", "")
        self.fitness.flows(checked_out(await self.store.flows.list()))
        await self.inbox.reconcile()
        self.vitals.start()
        self.dispatcher.start()
        self.rescuer.begin()
        self.overdue.start()
        self.inbox.start()
        self.pruner.start()
        self.dispatcher.release()

    async def stop(self) -> None:
        """End the loops; the store stays open."""
        self.dispatcher.hold_back()
        await self.scheduler.stop()
        await self.dispatcher.stop()
        await self.dispatcher.settle()
        await self.rescuer.stop()
        await self.overdue.stop()
        await self.inbox.stop()
        await self.pruner.stop()
        await self.vitals.stop()
        self.bus.close()
