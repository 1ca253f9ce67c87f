"""What people order workers to do: drain, resume, so many slots; and workers that are forgotten or expelled.

An order is stored first, so that it is obeyed whenever the worker comes back, then sent to a worker that is
there. A drain that a person ordered outlives the worker's program; one that a signal began ends with it.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from farhand_worker import protocol

from ..errors import Conflict, NotFound, Usage
from ..lifecycle import Ending
from ..model import LOCAL_WORKER
from ..store import Store
from .fleet import Fleet
from .member import OFFLINE, Member
from .rescuer import Rescuer
from .service import Wakeup
from .worker_events import WorkerEvents

SLOTS_MAX = 10_000
_SETTLED = Ending("lost", "worker_lost", "the worker was forgotten while it held the job")


class Operations:
    """Orders to workers. Every method raises `NotFound` for a worker there is not."""

    def __init__(
        self, store: Store, fleet: Fleet, rescuer: Rescuer, events: WorkerEvents, wakeup: Wakeup
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._rescuer = rescuer
        self._events = events
        self._wakeup = wakeup

    async def drain(self, name: str, by: str) -> bool:
        """Hand the worker nothing new until it is resumed; false when that was so."""
        await self._known(name)
        if not await self._store.workers.order_drain(name, by):
            return False
        member = self._fleet.get(name)
        if member is not None:
            member.drained_by = by
        # Told first: a worker that holds nothing says at once that it is drained.
        await self._events.tell("draining", name, f"{name} takes nothing new, as {by} ordered", by=by)
        if member is not None:
            _send(member, protocol.Set(draining=member.drained_by != ""))
        return True

    async def resume(self, name: str, by: str) -> bool:
        """Hand the worker jobs again; false when nobody had ordered otherwise.

        Raises `Conflict` for one that a signal has told to end: it cannot be kept from that.
        """
        await self._known(name)
        member = self._fleet.get(name)
        if member is not None and member.leaving and member.state != OFFLINE:
            raise Conflict(f"{name} was told to end where it runs, and does; start it again there")
        if not await self._store.workers.order_drain(name, ""):
            return False
        if member is not None:
            member.drained_by = ""
            _send(member, protocol.Set(draining=False))
        await self._events.tell("resumed", name, f"{name} takes work again, as {by} ordered", by=by)
        self._wakeup.set()
        return True

    async def set_slots(self, name: str, slots: int) -> None:
        """Give the worker so many slots for as long as its program lives. What runs goes on.

        Raises `Conflict` for one that is not attached: its own option says with how many it starts.
        """
        await self._known(name)
        if not 0 <= slots <= SLOTS_MAX:
            raise Usage(f"a worker has between 0 and {SLOTS_MAX} slots, not {slots}")
        member = self._fleet.get(name)
        if member is None or member.link is None:
            raise Conflict(f"{name} is not attached; start it with --parallel {slots}")
        await self._store.workers.set_slots(name, slots)
        member.parallel = slots
        _send(member, protocol.Set(parallel=slots))
        self._events.changed(name)
        self._wakeup.set()

    async def forget(self, name: str, settle: bool = False) -> int:
        """Forget a worker that is gone; how many jobs were taken from it. Should it come back, it is new.

        Raises `Conflict` for one that is attached, and for one that holds jobs unless ``settle`` says that
        they are to be queued again at once: its machine must be known to be dead then.
        """
        await self._known(name)
        if name == LOCAL_WORKER:
            raise Conflict(
                "the server's own processors are not forgotten; --parallel 0 starts it without any"
            )
        member = self._fleet.member(name)
        async with member.gate:
            if member.link is not None:
                raise Conflict(f"{name} is attached; stop it there, or revoke its token, then forget it")
            holdings = list(member.holdings.values())
            if holdings and not settle:
                raise Conflict(
                    f"{name} still holds {_jobs(len(holdings))}; wait until its lease has run out, or settle"
                    " them now (--settle) if that machine is surely dead"
                )
            await self._rescuer.take_back(member, holdings, _SETTLED)
            if not await self._store.workers.forget(name):
                raise Conflict(f"{name} still holds a job; try again")
            self._fleet.forget(name)
        self._events.changed(name)
        return len(holdings)

    async def dismiss_local(self) -> bool:
        """Forget the server's own processors, since it has none now; false while they still hold a job.

        An order to drain outlives them, so those that somebody has drained are kept.
        """
        member = self._fleet.get(LOCAL_WORKER)
        if member is None:
            return True
        async with member.gate:
            if member.holdings:
                return False
            if not member.drained_by:
                await self._store.workers.forget(LOCAL_WORKER)
                self._fleet.forget(LOCAL_WORKER)
        self._events.changed(LOCAL_WORKER)
        return True

    async def expel(self, jtis: AbstractSet[str]) -> None:
        """Tokens were revoked: the workers that have them are offline now, not when they are missed."""
        for member in [member for member in self._fleet if member.jti in jtis]:
            async with member.gate:
                member.token_revoked = True
                await self._rescuer.declare(member, OFFLINE, "its token has been revoked")

    async def _known(self, name: str) -> None:
        if await self._store.workers.get(name) is None:
            raise NotFound(f"there is no worker {name!r}; `farhand workers list` shows them")


def _send(member: Member, order: protocol.Set) -> None:
    if member.link is not None:
        member.link.send(order)


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"
