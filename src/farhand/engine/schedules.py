"""Schedules as people handle them: listed with their next fires, paused, resumed."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from .. import timing
from ..errors import FarhandError, NotFound, Usage
from ..model import Fire, Schedule
from ..store import Store
from .bus import Bus, Notice
from .scheduler import Scheduler

NEXT = 5
"""So many coming fires are shown."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A schedule with what it did last and what comes next.

    ``when`` says the timing in words, ``zone`` is that of its clock. ``state`` is active, paused or gone.
    ``problem`` says why an active one cannot fire.
    """

    schedule: Schedule
    state: str
    when: str
    zone: str
    next: tuple[float, ...]
    last: Fire | None
    problem: str = ""


class Schedules:
    """Every operation on schedules. Ids may be given by a prefix that only one schedule has."""

    def __init__(self, store: Store, scheduler: Scheduler, bus: Bus) -> None:
        self._store = store
        self._scheduler = scheduler
        self._bus = bus

    async def list(self) -> list[Planned]:
        """Every schedule, by flow; those whose flow is gone last."""
        last = await self._store.schedules.last_fires()
        found = [self._planned(s, last.get(s.id)) for s in await self._store.schedules.list()]
        return sorted(found, key=lambda planned: planned.state == "gone")

    async def get(self, id: str) -> Planned:
        """One schedule. Raises `NotFound`."""
        schedule = await self._find(id)
        fires = await self._store.schedules.fires(schedule.id, 1)
        return self._planned(schedule, fires[0] if fires else None)

    async def fires(self, id: str, limit: int = 50) -> list[Fire]:
        """The latest fires of a schedule, newest first."""
        return await self._store.schedules.fires((await self._find(id)).id, limit)

    async def pause(self, id: str) -> Planned:
        """Let it not fire until it is resumed; once more is harmless."""
        return await self._set_paused(id, True)

    async def resume(self, id: str) -> Planned:
        """Let it fire again, from the next time on: nothing of the pause is made up for."""
        return await self._set_paused(id, False)

    async def _set_paused(self, id: str, paused: bool) -> Planned:
        schedule = await self._find(id)
        if await self._store.schedules.set_paused(schedule.id, paused, self._scheduler.now()):
            self._scheduler.reload()
            self._bus.publish(Notice("schedule"))
        return await self.get(schedule.id)

    async def _find(self, id: str) -> Schedule:
        schedules = await self._store.schedules.list()
        exact = [schedule for schedule in schedules if schedule.id == id]
        found = exact or [schedule for schedule in schedules if id and schedule.id.startswith(id)]
        if not found:
            raise NotFound(f"there is no schedule {id!r}; `farhand schedules list` shows them")
        if len(found) > 1:
            raise Usage(f"several schedules begin with {id!r}: {', '.join(s.id for s in found)}")
        return found[0]

    def _planned(self, schedule: Schedule, last: Fire | None) -> Planned:
        state = "gone" if not schedule.present else "paused" if schedule.paused else "active"
        zone = str(schedule.spec.get("tz", "UTC"))
        try:
            rule = timing.read(schedule.spec)
        except FarhandError as error:
            return Planned(schedule, state, str(schedule.spec), zone, (), last, str(error))
        coming = tuple(itertools.islice(rule.fires(self._scheduler.now()), NEXT))
        when = f"{rule}, one at a time" if timing.skips(schedule.spec) else str(rule)
        return Planned(schedule, state, when, zone, coming if state == "active" else (), last)
