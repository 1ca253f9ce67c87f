"""Takes jobs back from workers whose lease has run out, and says who is lost and who is offline.

All by this process's monotonic clock, in memory. A worker that was heard since the start has
``lease_s + margin_s`` from the moment it was last heard; one that has not come back since the start has
``reattach_s`` (``lease_s + margin_s`` for a strict job). Whoever held the job is dead by then: its warden
counts from when the agent *sent* what the server heard, and without the margin.

After a stall of this process, frames that arrived meanwhile lie unread; they are read first.
"""

from __future__ import annotations

import asyncio
import logging
import time

from ..errors import FarhandError
from ..lifecycle import Ending
from ..store import Store
from .consequences import Consequences
from .fleet import Fleet
from .member import AWAITED, LOST, OFFLINE, ONLINE, Holding, Member
from .service import Service, Wakeup, delay_until
from .worker_events import WorkerEvents

log = logging.getLogger("farhand")

_STALL_S = 0.5
_RETRY_S = 1.0
_LOST = Ending("lost", "worker_lost", "worker went away mid-call")


class Rescuer(Service):
    """The loop over deadlines."""

    name = "rescuer"

    def __init__(self, store: Store, fleet: Fleet, consequences: Consequences, events: WorkerEvents) -> None:
        super().__init__()
        self._store = store
        self._fleet = fleet
        self._consequences = consequences
        self._events = events
        self._wakeup = Wakeup()
        fleet.began_at = time.monotonic()

    def begin(self) -> None:
        """The server's socket listens: absent workers are counted from now."""
        self._fleet.began_at = time.monotonic()
        self.start()

    def look(self) -> None:
        """Look again: a link closed, or a lease was made."""
        self._wakeup.set()

    async def _work(self) -> None:
        looked_at = 0.0
        while True:
            due_at = min((d for member in self._fleet for d in self._deadlines(member)), default=None)
            if due_at is not None and due_at <= looked_at:
                due_at = looked_at + _RETRY_S  # it was due at the last look, which could not settle it
            await self._wakeup.wait(delay_until(due_at, time.monotonic))
            if due_at is not None and time.monotonic() > due_at + _STALL_S:
                await asyncio.sleep(_STALL_S)
            looked_at = time.monotonic()
            await self._examine_all()

    async def _examine_all(self) -> None:
        for member in list(self._fleet):
            try:
                await self._examine(member)
            except Exception:  # whatever it was: the jobs of the others wait as well
                log.exception("%s could not be looked at, trying again", member.name)

    def _deadlines(self, member: Member) -> list[float]:
        """When something about this worker is due (monotonic seconds)."""
        if member.state == OFFLINE:
            return [time.monotonic() + _RETRY_S] if member.holdings else []
        due = [self._lost_at(member)] if member.state == ONLINE else []
        due.extend(self._fleet.expires_at(member, holding) for holding in member.holdings.values())
        if member.state == LOST or (member.state == AWAITED and not member.holdings):
            due.append(self._fleet.expires_at(member, None))
        return due

    def _lost_at(self, member: Member) -> float:
        times = self._fleet.times
        silent_at = (member.heard_at or self._fleet.began_at) + 3 * times.heartbeat_s
        return silent_at if member.closed_at is None else min(silent_at, member.closed_at + times.lost_s)

    async def _examine(self, member: Member) -> None:
        if member.gate.locked():
            return
        async with member.gate:
            now = time.monotonic()
            if member.state == ONLINE and self._lost_at(member) <= now:
                await self.declare(member, LOST, "the worker is not heard of")
            expired = [h for h in member.holdings.values() if self._fleet.expires_at(member, h) <= now]
            idle = member.state in (LOST, AWAITED) and self._fleet.expires_at(member, None) <= now
            if idle or (expired and len(expired) == len(member.holdings)):
                await self.declare(member, OFFLINE, "its leases have run out")
            await self.take_back(member, expired, _LOST)

    async def declare(self, member: Member, state: str, why: str) -> None:
        """Change a worker's state, once, and say so. Offline closes its session first: no ack follows."""
        if member.state == state:
            return
        member.state = state
        if state == OFFLINE and member.link is not None:
            member.link.close(why)
            member.link = None
        now = time.time()
        if state == OFFLINE:
            member.away_at = now
        self._consequences.reconsider(member)
        log.info("worker %s is %s: %s", member.name, state, why)
        try:
            # A worker that beats again is not stored as online: heartbeats never wait for the store.
            news = await self._store.workers.set_state(member.name, state, now) or state == LOST
        except FarhandError as error:
            log.error("that worker %s is %s could not be stored: %s", member.name, state, error)
            news = False
        if news:
            await self._events.tell(state, member.name, f"{member.name} is {state}: {why}")
        else:
            self._events.changed(member.name)

    async def take_back(self, member: Member, holdings: list[Holding], ending: Ending) -> None:
        """End these leases. What cannot be written now is tried again at the next look."""
        for holding in holdings:
            try:
                ended = self._store.reports.end(holding.job.id, holding.lease, ending, time.time())
                await self._consequences.of(ended)
            except FarhandError as error:
                log.error("job %s could not be taken back, trying again: %s", holding.job.id, error)
                continue
            self._fleet.release(holding.job.id, holding.lease)
