"""What stands between a job and its end: the queue, the workers, and all that moves jobs between them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from farhand_worker.protocol import Times

from ..blobs import Blobs
from ..model import LOCAL_WORKER
from ..store import Store
from .attachment import Attachments, inventory_of
from .bus import Bus
from .choosing import RESERVE_AFTER_S
from .consequences import Consequences
from .dispatcher import Dispatcher
from .fitness import Fitness, checked_out
from .fleet import Fleet
from .importchecks import AGAIN_S, TIMEOUT_S, ImportChecks
from .machines import Machines
from .member import OFFLINE
from .operations import Operations
from .overdue import Overdue
from .queue import Queue
from .reconciler import Reconciler
from .reports import Reports
from .rescuer import Rescuer
from .service import Wakeup
from .tokens import Tokens
from .turn import Turn
from .vitals import Vitals
from .worker_events import WorkerEvents


class Dispatch:
    """The services that jobs pass through, from the queue to their reports."""

    def __init__(
        self,
        store: Store,
        home: Path,
        times: Times,
        environment: Mapping[str, str] | None = None,
        reserve_after_s: float = RESERVE_AFTER_S,
        import_timeout_s: float = TIMEOUT_S,
        import_again_s: float = AGAIN_S,
    ) -> None:
        self.store = store
        self.times = times
        self.blobs = Blobs(home / "blobs")
        self.bus = bus = Bus()
        self.fleet = fleet = Fleet(times)
        self.queue = queue = Queue(fleet.kin_of)
        self.wakeup = wakeup = Wakeup()
        self.turn = turn = Turn()
        self.imports = ImportChecks(fleet, wakeup, self.blobs.has, import_timeout_s, import_again_s)
        self.fitness = fitness = Fitness(fleet, self.imports, queue, wakeup)
        self.consequences = follow = Consequences(queue, fleet, bus, wakeup, fitness, turn)
        self.vitals = Vitals(bus)
        self.worker_events = WorkerEvents(store, bus)
        self.rescuer = Rescuer(store, fleet, follow, self.worker_events)
        self.operations = Operations(store, fleet, self.rescuer, self.worker_events, wakeup)
        self.tokens = Tokens(store, home, environment, on_end=self.operations.expel)
        self.machines = machines = Machines(store, self.tokens, fleet, self.fitness, queue, bus, wakeup)
        handed_over = self.vitals.handed_over
        self.dispatcher = Dispatcher(
            store, queue, fleet, follow, bus, wakeup, fitness, handed_over, reserve_after_s, machines
        )
        self.attachments = Attachments(
            store, fleet, self.rescuer, follow, bus, wakeup, fitness, self.worker_events
        )
        self.overdue = Overdue(store, fleet, follow)
        self.reconciler = Reconciler(store, queue, fleet, self.rescuer, wakeup)
        self.reports = Reports(store, follow, fleet, self.imports, self.overdue.look, self.dispatcher)

    async def load(self) -> None:
        """Read from the store what is queued and who holds what."""
        for job in await self.store.jobs.held():
            if job.lease is not None:
                self.fleet.hold(self.fleet.member(job.worker or LOCAL_WORKER), job, job.lease)
        for job in await self.store.jobs.queued():
            self.queue.add(self.queue.steady.of(job), self.queue.steady.now())
        tokens = {token.jti: token for token in await self.store.tokens.list()}
        for known in await self.store.workers.list():
            member = self.fleet.member(known.name)
            if known.state == OFFLINE and not member.holdings:
                member.state, member.away_at = OFFLINE, known.last_seen_at or 0.0
            member.labels, member.parallel = frozenset(known.labels), known.parallel
            member.instance, member.host, member.boot_id = known.instance, known.host, known.boot_id
            member.python, member.environment = known.python, known.environment
            member.checkout, member.git = known.checkout, known.git
            member.jti, member.drained_by = known.jti, known.drained_by
            token = tokens.get(known.jti)
            member.token_until = None if token is None else token.expires_at
            member.token_revoked = token is not None and token.revoked_at is not None
            member.inventory = inventory_of(known.reported.get("inventory"))
            member.service_host = known.reported.get("service_host", "")
            member.hosts, member.address = bool(known.reported.get("hosts")), known.address
            member.ends_at = known.reported.get("ends_at")
        self.fitness.flows(checked_out(await self.store.flows.list()))

    def begin(self) -> None:
        """Begin the loops; nothing is handed out before the dispatcher is released."""
        self.vitals.start()
        self.dispatcher.start()
        self.rescuer.begin()
        self.overdue.start()
        self.reconciler.start()

    async def end(self) -> None:
        """End the loops."""
        await self.reconciler.stop()
        await self.dispatcher.stop()
        await self.dispatcher.settle()
        await self.rescuer.stop()
        await self.attachments.stop()
        await self.overdue.stop()
