"""Machines that provisioners were asked for, and what of the queue they are for.

Here is what the rest of the server knows of provisioning: the dispatcher says which jobs no worker that is
there could ever take, and is told in words what was asked for on their behalf. Who talks to schedulers is
`farhand.provision`, which works on these records.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import Conflict, FarhandError, NotFound, Usage
from ..model import Job, Machine
from ..provisioning import Demand, Key, Shape, Standing, covers, smallest, wanted
from ..store import Store
from .bus import Bus, Notice
from .choosing import Beyond
from .disproofs import Disproofs
from .fitness import Fitness
from .fleet import Fleet
from .member import LOST, ONLINE, Member
from .queue import Lane, Queue
from .roles import WORKER
from .service import Wakeup
from .tokens import Tokens, draft

log = logging.getLogger("farhand")

_COUNTED_MAX = 1000
_GONE_MAX = 1000
ENDED_SHOWN = 10


@dataclass(frozen=True, slots=True)
class MachineView:
    """A machine that was asked for, as people see it. ``outstanding_s`` is how long ago that was."""

    name: str
    provisioner: str
    profile: str
    state: str
    job: str
    reason: str
    message: str
    asked_at: float
    outstanding_s: float
    tries: int
    attached_at: float | None
    ended_at: float | None


@dataclass(frozen=True, slots=True)
class ProvisionerView:
    """A provisioner that is configured. ``trouble`` is what last went wrong, empty once all is well again."""

    name: str
    type: str
    at: str
    profiles: tuple[Shape, ...]
    on_stop: str
    provision_timeout_s: float
    max_idle_s: float
    trouble: str = ""
    trouble_at: float | None = None


@dataclass(frozen=True, slots=True)
class Provisions:
    """What can be asked for, what is outstanding, what ended last; ``trouble`` is that of the file."""

    provisioners: list[ProvisionerView] = field(default_factory=list[ProvisionerView])
    machines: list[MachineView] = field(default_factory=list[MachineView])
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was tried with a provisioner, and what came of it."""

    what: str
    ok: bool
    said: str


Tester = Callable[[str, bool], Awaitable[list[Check]]]


@dataclass
class Machines(Beyond):
    """The machines that have not ended, by name; every change of one is in the store first."""

    store: Store
    tokens: Tokens
    fleet: Fleet
    fitness: Fitness
    queue: Queue
    bus: Bus
    wakeup: Wakeup
    changed: Wakeup = field(default_factory=Wakeup)
    tester: Tester | None = None
    trouble: str = ""
    _open: dict[str, Machine] = field(default_factory=dict[str, Machine])
    _views: dict[str, ProvisionerView] = field(default_factory=dict[str, ProvisionerView])
    _lacking: list[tuple[Job, Lane]] = field(default_factory=list[tuple[Job, Lane]])
    _disproofs: Disproofs = field(default_factory=Disproofs)

    async def load(self) -> None:
        """Read what an earlier server has asked for."""
        self._open = {machine.name: machine for machine in await self.store.machines.open()}

    # ------------------------------------------------------------ for the dispatcher

    def lacking(self, unserved: list[tuple[Job, Lane]]) -> None:
        """These are the heads of lanes that no worker which is there could ever serve, as of now."""
        if unserved or self._lacking:
            self._lacking = unserved
            self.changed.set()

    def asked_for(self, worker: str) -> bool:
        """Whether a worker is a machine that was asked for."""
        return worker in self._open

    def may_come(self, job: Job) -> bool:
        """Whether a machine can still be had for a job whose code is against all that are there."""
        return self._shape_for(job) is not None

    def note(self, job: Job) -> str:
        """What was asked for on behalf of a job that no worker could take; empty where there is nothing."""
        shape = self._shape_for(job)
        if shape is None:
            out = sorted("/".join(key) for key in self._disproofs.out_for(job))
            one = "a machine" if len(out) == 1 else "machines"
            return f"{one} of {' and '.join(out)} came and could not take it" if out else ""
        awaited = [m for m in self._open.values() if _key(m) == shape.key and m.state != "attached"]
        view = self._views.get(shape.provisioner)
        told = [self.sentence(machine) for machine in awaited[:3]]
        trouble = "" if view is None else view.trouble
        if trouble and not any(trouble in sentence for sentence in told):
            told.append(f"{shape.provisioner}: {trouble}")
        return "; ".join(told)

    # ------------------------------------------------------------ what is wanted

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Every profile there is."""
        return tuple(shape for view in self._views.values() for shape in view.profiles)

    def wanted(self) -> list[Shape]:
        """The machines to ask for now."""
        shapes = self.shapes
        if not shapes:
            return []
        demands: list[Demand] = []
        for job, lane in self._lacking:
            if self._shape_for(job) is not None:
                count = self.queue.size_of(lane, _COUNTED_MAX)
                demands.append(Demand(job.ask, count, self._disproofs.out_for(job)))
        return wanted(demands, shapes, self._standing())

    def needed(self, machine: Machine) -> bool:
        """Whether anything that is queued could go to a machine that has not come yet."""
        shape = next((s for s in self.shapes if s.key == _key(machine)), None)
        return shape is None or any(
            covers(shape, job.ask) and shape.key not in self._disproofs.out_for(job)
            for job in self.queue.heads()
        )

    def _standing(self) -> dict[Key, Standing]:
        found: dict[Key, Standing] = {}
        for machine in self._open.values():
            there = found.get(_key(machine), Standing())
            attached = machine.state == "attached"
            found[_key(machine)] = Standing(there.awaited + (not attached), there.attached + attached)
        return found

    def _shape_for(self, job: Job) -> Shape | None:
        """The smallest profile that covers a job, but for those whose machines came and could not take it."""
        while True:
            shape = smallest(self.shapes, job.ask, self._disproofs.out_for(job))
            if shape is None or not self._is_disproved(shape, job):
                return shape

    def _is_disproved(self, shape: Shape, job: Job) -> bool:
        """Whether a machine of a profile is there and is no machine for a job, which is kept in mind."""
        there = [
            self.fleet.get(machine.name) for machine in self._open.values() if _key(machine) == shape.key
        ]
        for member in there:
            if member is None or member.state != ONLINE or member.draining:
                continue
            if member not in self.fleet.able(job.ask):
                self._disproofs.has_less(shape.key, job.ask)
            elif self._is_against(job, member):
                self._disproofs.cannot_run(shape.key, job)
            else:
                continue
            log.warning("%s, of %s, is no machine for %s", member.name, "/".join(shape.key), job.flow)
            return True
        return False

    def _is_against(self, job: Job, member: Member) -> bool:
        """Whether a worker could never take a job for its code or arguments; time aside."""
        against = self.fitness.against(job, member)
        return against is not None and against.for_good and against.code != "ends_too_soon"

    # ------------------------------------------------------------ for whoever talks to schedulers

    def of(self, provisioner: str) -> list[Machine]:
        """The open machines of a provisioner."""
        return [machine for machine in self._open.values() if machine.provisioner == provisioner]

    def orphans(self) -> list[Machine]:
        """Open machines whose provisioner is not configured any more."""
        return [machine for machine in self._open.values() if machine.provisioner not in self._views]

    async def gone(self, since_s: float) -> list[str]:
        """The workers that are still listed of machines that have ended so long ago."""
        before = time.time() - since_s
        ended = [m.name for m in await self.store.machines.ended(_GONE_MAX) if (m.ended_at or 0.0) < before]
        listed = {worker.name for worker in await self.store.workers.list()} if ended else set[str]()
        return [name for name in ended if name in listed and name not in self._open]

    def is_online(self, machine: Machine) -> bool:
        """Whether its worker is there."""
        member = self.fleet.get(machine.name)
        return member is not None and member.attached

    def is_lost(self, machine: Machine) -> bool:
        """Whether its worker is not heard of, and may come back."""
        member = self.fleet.get(machine.name)
        return member is not None and (member.state == LOST or bool(member.holdings))

    def offer(self, views: Iterable[ProvisionerView]) -> None:
        """These provisioners there are from now on."""
        self._views = {view.name: view for view in views}
        self._disproofs.clear()
        self._tell()

    def say(self, provisioner: str, trouble: str) -> None:
        """What last went wrong with a provisioner, or nothing any more."""
        view = self._views.get(provisioner)
        if view is not None and view.trouble != trouble:
            if trouble:
                log.warning("provisioner %s: %s", provisioner, trouble)
            at = time.time() if trouble else None
            self._views[provisioner] = replace(view, trouble=trouble, trouble_at=at)
            self._tell()

    def say_of_file(self, trouble: str) -> None:
        """What is wrong with the file of provisioners; the ones before it stay in force."""
        if self.trouble != trouble:
            self.trouble = trouble
            self._tell()

    async def ask_for(self, shape: Shape, name: str, valid_s: float) -> Machine:
        """Record that a machine is to be asked for; nothing is submitted before that."""
        token, now = draft(name, WORKER, shape.labels, valid_s), time.time()
        machine = Machine(name, *shape.key, "asked", shape.labels, token.jti, token.expires_at, now, now, now)
        await self.store.machines.add(machine, token)
        self._open[name] = machine
        await self._record(machine)
        return machine

    async def token_of(self, machine: Machine) -> str:
        """The token of its worker. Raises `NotFound` when that is gone or has been revoked."""
        token = await self.store.tokens.get(machine.jti)
        if token is None or token.revoked_at is not None:
            raise NotFound(f"the token of {machine.name} has been revoked")
        return self.tokens.text_of(token)

    async def change(self, machine: Machine, state: str = "", **fields: Any) -> Machine:
        """The machine as it is from now on; as it was, when somebody else has changed it."""
        now, state = time.time(), state or machine.state
        moved = state != machine.state
        after = replace(machine, state=state, since=now if moved else machine.since, **fields)
        if state == "ended":
            after = replace(after, ended_at=now)
        if after == machine or not await self.store.machines.change(machine, after):
            return self._open.get(machine.name, machine)
        if state == "ended":
            self._open.pop(machine.name, None)
            await self._revoke(machine)
        else:
            self._open[machine.name] = after
        if moved:
            await self._record(after)
        self._tell()
        return after

    async def _revoke(self, machine: Machine) -> None:
        """Nobody is to be let in under its name any more."""
        try:
            await self.tokens.revoke(machine.jti)
        except (NotFound, Conflict):
            log.info("the token of %s is gone already", machine.name)

    async def _record(self, machine: Machine) -> None:
        message = self.sentence(machine)
        log.info("%s: %s", machine.name, message)
        try:
            kind, worker = f"machine.{machine.state}", machine.name
            await self.store.events.add(time.time(), kind, message, worker=worker)
        except FarhandError as error:
            log.error("that %s could not be stored: %s", message, error)

    def _tell(self) -> None:
        """Who waits is told anew why, and who watches looks again."""
        self.wakeup.set()
        self.bus.publish(Notice("worker"))

    # ------------------------------------------------------------ for people

    async def provisions(self) -> Provisions:
        """Everything, as it is now."""
        ended = await self.store.machines.ended(ENDED_SHOWN)
        shown = [self.view(machine) for machine in [*self._open.values(), *ended]]
        return Provisions(list(self._views.values()), shown, self.trouble)

    def outstanding(self) -> Provisions:
        """The same, without what has ended."""
        shown = [self.view(machine) for machine in self._open.values()]
        return Provisions(list(self._views.values()), shown, self.trouble)

    def view(self, machine: Machine) -> MachineView:
        """A machine as people see it."""
        until = machine.ended_at or time.time()
        return MachineView(
            machine.name, machine.provisioner, machine.profile, machine.state, self._job(machine),
            machine.reason, self.sentence(machine), machine.asked_at, max(0.0, until - machine.asked_at),
            machine.tries, machine.attached_at, machine.ended_at,
        )  # fmt: skip

    def sentence(self, machine: Machine) -> str:
        """What became of asking for it, in the scheduler's own words."""
        words = [f"requested {machine.provisioner}/{machine.profile}"]
        if machine.external:
            words.append(self._job(machine))
        if machine.state in ("attached", "leaving", "ended"):
            words.append({"leaving": "is given back"}.get(machine.state, machine.state))
        if machine.reason:
            words.append(machine.reason)
        return ", ".join(words)

    def _job(self, machine: Machine) -> str:
        view = self._views.get(machine.provisioner)
        kind = "Slurm job" if view is not None and view.type == "slurm" else "job"
        return f"{kind} {machine.external}" if machine.external else ""

    async def test(self, provisioner: str, submit: bool) -> list[Check]:
        """Try a provisioner; ``submit``: with a real job of a minute at most. Raises `NotFound`."""
        if provisioner not in self._views or self.tester is None:
            known: Mapping[str, Any] = self._views
            there = f"; there are {', '.join(sorted(known))}" if known else "; none is configured"
            raise NotFound(f"there is no provisioner {provisioner!r}{there}")
        return await self.tester(provisioner, submit)


def checked_name(provisioner: str, profile: str, unique: str) -> str:
    """The name of a machine: those of its provisioner and profile, cut to fit, and something unique."""
    name = f"{provisioner}-{profile}"[: 62 - len(unique)].rstrip("._-") + f"-{unique}"
    if len(name) > 63:
        raise Usage(f"{name!r} is too long for a worker")
    return name


def _key(machine: Machine) -> Key:
    return machine.provisioner, machine.profile
