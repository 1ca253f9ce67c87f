"""All services of a server, put together; `start` and `stop` in the one order that is right."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from farhand_worker.protocol import Times

from ..store import Store
from . import runtime
from .audit import Audit
from .backup import Backup
from .blob_access import BlobAccess
from .calls import Calls
from .choosing import RESERVE_AFTER_S
from .declared import Declared
from .dispatch import Dispatch
from .doctor import Doctor
from .flavors import Flavors
from .flows import Flows
from .graphs import Graphs
from .hosting import Hosting
from .importchecks import AGAIN_S, TIMEOUT_S
from .inbox import Inbox
from .invitations import Invitations
from .lookout import Lookout
from .masking import Masker
from .needs import Needs
from .projects import Projects
from .pruner import Pruner
from .runs import Runs
from .scheduler import Scheduler
from .schedules import Schedules
from .secrets import Secrets
from .streams import Streams
from .tunnels import Tunnels
from .usage import Resources
from .variables import Variables
from .why import Explanations
from .workers import Workers

log = logging.getLogger("farhand")


class Services(Dispatch):
    """What the web and the gateway are given: what jobs pass through, and what people ask for."""

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
        super().__init__(store, home, times, environment, reserve_after_s, import_timeout_s, import_again_s)
        self.masker = Masker()
        self.inbox = Inbox(home, store, self.blobs, self.bus)
        self.lookout = Lookout(store)
        self.flows = Flows(store, self.lookout)
        self.blob_access = BlobAccess(self.reports, store.run_blobs, self.fleet, self.imports)
        self.runs = Runs(
            store,
            self.queue,
            self.fleet,
            self.consequences,
            self.masker,
            self.dispatcher,
            self.lookout,
        )
        self.calls = Calls(store, self.runs, self.queue, self.fleet)
        self.resources = Resources(self.fleet, self.queue, self.machines.outstanding)
        self.explanations = Explanations(self.runs, self.queue, self.fleet)
        self.scheduler = Scheduler(store, self.runs, self.consequences, self.bus)
        self.hosting = Hosting(store, self.fleet, self.queue, self.consequences, self.bus)
        self.tunnels = Tunnels()
        self.projects = Projects(
            store, self.blobs, self.scheduler, self.bus, self.fitness.offered, self.consequences
        )
        self.schedules = Schedules(store, self.scheduler, self.bus)
        self.workers = Workers(store, self.fleet)
        self.invitations = Invitations(store, self.tokens)
        self.audit = Audit(store, self.masker)
        self.secrets = Secrets(store, home, self.masker, self.audit, environment)
        self.variables = Variables(store)
        self.flavors = Flavors(store)
        self.streams = Streams(store, self.bus, self.fleet, self.wakeup)
        self.needs = Needs(store, self.secrets, self.variables, self.hosting, self.streams, self.blobs)
        self.doctor = Doctor(store, home, self.fleet, self.secrets)
        self.ready = False
        self.limits: dict[str, int] = {}
        self.runtime = self.blobs.put_bytes(runtime.build())
        self.blob_probe = self.blobs.write_probe()
        self.pruner = Pruner(
            store, self.blobs, lambda: [self.runtime], keep_s=keep_s, keep_audit_s=keep_audit_s
        )
        self.declared = Declared(
            store, self.blobs, self.runs, self.pruner, self.scheduler, self.bus, self.consequences
        )
        self.graphs = Graphs(store)
        self.backup = Backup(store, home, self.pruner)

    async def start(self) -> None:
        """Read from the store what is queued and who holds what; begin the loops. The socket listens."""
        for name in await self.secrets.load():
            log.error("the secret %r was sealed with another key; put the key back, or set it anew", name)
        await self.load()
        await self.inbox.reconcile()
        self.begin()
        self.inbox.start()
        self.pruner.start()
        self.dispatcher.release()

    async def stop(self) -> None:
        """End the loops; the store stays open."""
        self.dispatcher.hold_back()
        await self.scheduler.stop()
        await self.end()
        await self.inbox.stop()
        await self.pruner.stop()
        await self.vitals.stop()
        self.bus.close()
