"""Who may be a worker, and what a worker that comes back still holds.

A name belongs to one instance at a time. A newcomer under a live name is answered by what can be proved:
the same instance simply goes on; one that has swept its predecessor's state directory, or whose machine
was booted again, has the name at once; while the old one still beats, the newcomer is refused for good;
otherwise it waits until the old leases have run out.

On attaching, every job the store says this worker holds is either resumed (the agent lists it under its
current lease) or taken back (it does not: the hand-off never arrived, or the process that held it is gone).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from farhand_worker import protocol

from ..errors import FarhandError
from ..lifecycle import Ending
from ..model import Job, Json, Worker
from ..store import Store
from ..store.tasks import outcome_body
from .bus import Bus, Notice
from .consequences import Consequences
from .fitness import Fitness
from .fleet import Fleet
from .member import AWAITED, OFFLINE, ONLINE, Holding, Link, Member
from .rescuer import Rescuer
from .service import Wakeup
from .worker_events import WorkerEvents

log = logging.getLogger("farhand")

_Recording = Callable[[], Awaitable[None]]

_NEVER_ARRIVED = Ending("not_started", "handoff_failed", "the worker never received the job")
_GONE = Ending("lost", "worker_lost", "the worker's program ended and its engines with it")


@dataclass(frozen=True, slots=True)
class Credential:
    """What the token says: the name and labels are the token's, never the worker's choice."""

    name: str
    labels: tuple[str, ...]
    jti: str
    expires_at: float | None = None


@dataclass(frozen=True, slots=True)
class Attached:
    """A session stands."""

    member: Member
    resume: list[protocol.Resume]


class Attachments:
    """Lets workers in, keeps them apart, and lets them go."""

    def __init__(
        self,
        store: Store,
        fleet: Fleet,
        rescuer: Rescuer,
        consequences: Consequences,
        bus: Bus,
        wakeup: Wakeup,
        fitness: Fitness,
        events: WorkerEvents,
    ) -> None:
        self._fitness, self._imports = fitness, fitness.imports
        self._store = store
        self._fleet = fleet
        self._rescuer = rescuer
        self._consequences = consequences
        self._bus = bus
        self._wakeup = wakeup
        self._events = events
        self._recordings: set[asyncio.Task[None]] = set()

    async def attach(
        self, hello: protocol.Hello, credential: Credential, link: Link, address: str
    ) -> Attached | protocol.Refused:
        """Let a worker in, or say why not."""
        listed = _held(hello)
        member = self._fleet.member(credential.name)
        contested = member.instance, member.link
        refusal = await self._contest(member, hello)
        if refusal is not None:
            return refusal
        async with member.gate:
            if member.instance != hello.instance and (member.instance, member.link) != contested:
                message = f"another instance of {member.name} came first"
                return protocol.Refused("name_taken", message)
            replaced = member.instance not in ("", hello.instance)
            self._admit(member, hello, credential, link)
            member.hosts, member.tunnels, member.address = hello.hosts, hello.tunnels, address
            try:
                foreign = hello.incarnation not in (None, self._store.meta.incarnation())
                resume = await self._settle(member, listed, replaced, foreign)
                record = partial(self._record, member, hello, credential, link, address)
                if contested[0] == hello.instance and _all_listed(member, listed):
                    await self._record_soon(member, link, record)
                else:
                    await record()
            except BaseException:  # whatever it was, the link is not the worker's
                self.closed(member, link)
                raise
            return Attached(member, resume)

    def _admit(self, member: Member, hello: protocol.Hello, credential: Credential, link: Link) -> None:
        """The name belongs to this session from now; until it is welcomed no job is handed over."""
        if member.link is not None:
            member.link.close("the worker opened another session")
        member.link, member.state = link, AWAITED
        member.instance, member.host, member.boot_id = hello.instance, hello.host, hello.boot_id
        member.python, member.checkout, member.git = hello.python, hello.checkout or "", hello.git
        member.ends_at = hello.ends_at
        member.differs, member.compared = {}, frozenset()
        member.labels, member.parallel = frozenset(credential.labels), hello.parallel
        member.inventory, member.service_host = inventory_of(hello.inventory), hello.service_host or ""
        member.jti, member.leaving, member.trouble = credential.jti, hello.draining, ""
        member.token_until, member.token_revoked = credential.expires_at, False
        member.ahead = (
            min(hello.ahead, protocol.AHEAD_MAX) if hello.several and self._fleet.times.behind_s else 0
        )
        self.heard(member)

    def welcomed(self, member: Member, link: Link) -> None:
        """The welcome is on its way: jobs may follow it. A session that was replaced meanwhile gets none."""
        if member.link is not link:
            return
        member.state = ONLINE
        self._events.welcomed(member.name)
        if member.drained_by:
            link.send(protocol.Set(draining=True))
        self._fitness.ask_checkout(member)
        self._bus.publish(Notice("worker", record=member.name))
        self._consequences.reconsider(member)
        self._rescuer.look()

    def changed(self, member: Member, changed: protocol.Changed) -> Coroutine[Any, Any, None]:
        """What is installed or checked out on a worker is another than before. That it can take nothing
        counts at once, before what it says next."""
        if changed.trouble is not None and changed.trouble != member.trouble:
            self._note_trouble(member, changed.trouble)
        return self._note_surroundings(member, changed)

    async def _note_surroundings(self, member: Member, changed: protocol.Changed) -> None:
        if changed.differs is not None:
            member.differs = {name: tuple(files) for name, files in changed.differs.items()}
        if changed.git is not None and changed.git != member.git:
            member.git = changed.git
            await self._store.workers.set_git(member.name, changed.git)
        await self._note_environment(member, changed.environment or "", changed.installed or [])
        self._fitness.checkout_changed(member)
        self._wakeup.set()
        self._bus.publish(Notice("worker", record=member.name))

    def _note_trouble(self, member: Member, trouble: str) -> None:
        member.trouble = trouble
        if trouble:
            log.warning("worker %s takes nothing new: %s", member.name, trouble)
        else:
            log.info("worker %s takes work again", member.name)
        self._consequences.reconsider(member)

    async def _note_environment(self, member: Member, digest: str, changes: Sequence[str] = ()) -> None:
        if digest and digest != member.environment:
            member.environment = digest
            await self._store.workers.set_environment(member.name, digest, time.time(), changes)
            self._fitness.environment_changed(member.name, digest)

    def heard(self, member: Member) -> None:
        """The worker was heard: its leases are renewed from now."""
        member.heard_at = time.monotonic()
        member.closed_at = None

    def back(self, member: Member) -> None:
        """A worker that was silent beats again on a session that never closed."""
        member.state = ONLINE
        self._bus.publish(Notice("worker", record=member.name))
        self._consequences.reconsider(member)

    def closed(self, member: Member, link: Link) -> None:
        """The session's socket closed. Not yet a lost worker."""
        if member.link is link:
            member.link = None
            member.closed_at = time.monotonic()
            self._rescuer.look()

    async def drained(self, member: Member) -> None:
        """The worker takes nothing new and holds nothing any more."""
        await self._events.tell("drained", member.name, f"{member.name} holds nothing any more")

    async def refused(
        self, hello: protocol.Hello, name: str, refusal: protocol.Refused, address: str
    ) -> None:
        """A worker was turned away at its hello."""
        await self._events.refused(name, refusal.code, refusal.message, address, hello.instance)

    async def leave(self, member: Member, link: Link, reason: str) -> None:
        """The worker said goodbye: it is offline at once, and what it held is queued again."""
        async with member.gate:
            if member.link is link:
                await self._rescuer.declare(member, OFFLINE, reason)
                ending = Ending("stopped", "worker_left", reason)
                await self._rescuer.take_back(member, list(member.holdings.values()), ending)

    async def _contest(self, member: Member, hello: protocol.Hello) -> protocol.Refused | None:
        """Why this newcomer must not have the name (now), or None."""
        if member.instance in ("", hello.instance) or member.state == OFFLINE:
            return None
        rebooted = member.host == hello.host and member.boot_id not in ("", hello.boot_id)
        if hello.swept == member.instance or rebooted:
            return None
        if member.link is not None and await self._still_beats(member):
            message = (
                f"another instance of {member.name} is attached and alive, on {member.host}; "
                "stop it, or mint a token of another name"
            )
            return protocol.Refused("namesake", message, final=True)
        if not member.holdings and member.link is None:
            return None
        message = f"waits until the leases of the previous instance of {member.name} have run out"
        return protocol.Refused("name_taken", message)

    async def _still_beats(self, member: Member) -> bool:
        """Whether the old session, asked to beat, is heard within ``margin_s``."""
        before = member.heard_at
        if member.link is not None:
            member.link.send(protocol.Probe())
        deadline = time.monotonic() + self._fleet.times.margin_s
        while time.monotonic() < deadline and member.link is not None:
            await asyncio.sleep(self._fleet.times.heartbeat_s / 10)
            if member.heard_at != before:
                return True
        return False

    async def _settle(
        self, member: Member, listed: list[protocol.Held], replaced: bool, foreign: bool
    ) -> list[protocol.Resume]:
        """Resume what is listed under a current lease, take back what is not listed.

        Leases of another incarnation of the store (``foreign``) are none here, whatever their numbers.
        """
        rode = [held.lease for held in listed if held.rode_outage and not foreign]
        if rode:
            await self._store.reports.mark_overlap(member.name, rode)
        resume: list[protocol.Resume] = []
        current: dict[int, Job] = {}
        for held in listed:
            job = await self._store.jobs.get(held.job)
            recorded = await self._store.reports.recorded(held.job, held.lease)
            current_lease = job is not None and (job.lease, job.worker) == (held.lease, member.name)
            live = current_lease and not foreign
            if job is not None and live:
                current[held.lease] = job
            cancelling = job is not None and job.cancelling
            checking = self._imports.resumed(member.name, held)
            if checking is not None:
                recorded, live = checking, True
            resume.append(protocol.Resume(held.job, held.lease, recorded, not live, cancelling))
        self._imports.attached(member.name, [held.job for held in listed], not replaced)
        missing = [h for h in member.holdings.values() if h.lease not in current]
        for holding in missing:
            await self._rescuer.take_back(member, [holding], self._ending(holding, replaced))
        for lease, job in current.items():
            self._fleet.hold(member, job, lease)
        for lease, job in current.items():
            # A report of the earlier session may have been committed between the look and the hold.
            if not await self._store.reports.is_current(job.id, lease):
                self._fleet.release(job.id, lease)
        return resume

    @staticmethod
    def _ending(holding: Holding, replaced: bool) -> Ending:
        """How to call it: an agent that lives and does not know of a job never received it."""
        return _GONE if replaced or holding.job.started_at is not None else _NEVER_ARRIVED

    async def _record(
        self, member: Member, hello: protocol.Hello, credential: Credential, link: Link, address: str
    ) -> None:
        now = time.time()
        worker = Worker(
            name=member.name,
            state=ONLINE,
            labels=credential.labels,
            parallel=hello.parallel,
            instance=hello.instance,
            host=hello.host,
            python=hello.python,
            version=hello.version,
            boot_id=hello.boot_id,
            address=address,
            attached_at=now,
            last_seen_at=now,
            jti=credential.jti,
            protocol=min(max(hello.protocol), protocol.SUPPORTED[1]),
            reported=_reported(hello),
            checkout=member.checkout,
            git=member.git,
        )
        stored, was_away = await self._store.workers.attach(worker)
        await self._note_environment(member, hello.environment)
        member.drained_by = stored.drained_by
        if stored.slots is not None and stored.slots != hello.parallel:
            member.parallel = stored.slots
            link.send(protocol.Set(parallel=stored.slots))
        if was_away:
            message = f"{member.name} attached from {hello.host}"
            await self._events.tell("attached", member.name, message, address=address)
        await self._store.tokens.used(credential.jti, now, address)

    async def _record_soon(self, member: Member, link: Link, record: _Recording) -> None:
        """Record that a known instance is back, which nothing depends on: a store that refuses, or takes its
        time, costs no lease. What is not recorded within a heartbeat is recorded later."""
        recording = asyncio.ensure_future(record())
        done, _ = await asyncio.wait({recording}, timeout=self._fleet.times.heartbeat_s)
        if done and recording.exception() is None:
            return
        follow = asyncio.create_task(self._keep_recording(member, link, recording, record))
        self._recordings.add(follow)
        follow.add_done_callback(self._recordings.discard)

    async def _keep_recording(
        self, member: Member, link: Link, recording: asyncio.Future[None], record: _Recording
    ) -> None:
        """Try until it is recorded, for as long as the session lasts."""
        while True:
            try:
                await recording
                return
            except FarhandError as error:
                log.error("that %s is attached could not be stored, trying again: %s", member.name, error)
            await asyncio.sleep(self._fleet.times.heartbeat_s)
            if member.link is not link:
                return
            recording = asyncio.ensure_future(record())

    async def stop(self) -> None:
        """Record nothing any more."""
        for task in self._recordings:
            task.cancel()
        await asyncio.gather(*self._recordings, return_exceptions=True)

    async def outcomes(self, member: Member) -> list[protocol.Outcome | protocol.Proceed]:
        """What the agent may have missed: the ends of calls that its jobs placed, and that they may go on."""
        found: list[protocol.Outcome | protocol.Proceed] = []
        for holding in list(member.holdings.values()):
            if holding.job.block and not holding.job.blocked:
                found.append(protocol.Proceed(holding.job.id, holding.lease, holding.job.block))
            for task in await self._store.tasks.placed(holding.job.id):
                found.append(protocol.Outcome(holding.job.id, holding.lease, task.key, outcome_body(task)))
        return found


def _all_listed(member: Member, listed: list[protocol.Held]) -> bool:
    """Whether the worker has all that it is believed to hold: nothing of it is still to be taken back."""
    return member.holdings.keys() <= {held.lease for held in listed}


_TOLD = ("inventory", "status_url", "service_host", "shared_paths", "ends_at", "hosts")


def _reported(hello: protocol.Hello) -> Json:
    """What a hello says besides what the store has columns for; ``called`` is the name it was given there."""
    told = {name: getattr(hello, name) for name in _TOLD}
    return {"called": hello.name} | {name: value for name, value in told.items() if value}


def inventory_of(told: Json | None) -> protocol.Inventory:
    """What a worker has told of its machine. Raises `ProtocolViolation` for what is no inventory."""
    try:
        return msgspec.convert(told or {}, protocol.Inventory)
    except msgspec.ValidationError as error:
        raise protocol.ProtocolViolation(f"hello has an inventory that is none: {error}") from error


def _held(hello: protocol.Hello) -> list[protocol.Held]:
    try:
        return msgspec.convert(hello.held, list[protocol.Held])
    except msgspec.ValidationError as error:
        raise protocol.ProtocolViolation(f"hello lists a job that is none: {error}") from error
