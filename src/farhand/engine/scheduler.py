"""Starts runs by the clock: a service that sleeps until the next fire of any schedule.

It sleeps on a timer that does not follow the wall clock, so it looks at the wall clock again at least
every `LOOK_S`: a clock that jumps forward makes fires late by that much, and one that jumps back makes
nothing happen twice, because a fire time is stored once, in the transaction that creates its run.

Fires that came due while no server ran, or while the clock jumped over them, are made up for once: the
latest of them fires, late. A fire is never dropped for being late. Of a schedule that skips what overlaps
it is recorded that it fired and started nothing.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from .. import timing
from ..errors import FarhandError, InvalidParameters, NotFound
from ..model import Fire, Job, Run, Schedule
from ..store import Store
from ..store.answers import Answer
from .bus import Bus, Notice
from .consequences import Consequences
from .runs import Runs
from .service import Service, Wakeup

log = logging.getLogger("farhand")

LOOK_S = 30.0
"""How long at most the wall clock is not looked at."""

AGAIN_S = 1.0
"""So soon a schedule that could not be looked at is looked at again."""

LATE_S = 2.0
"""A fire that begins later than this after its time is flagged late."""


@dataclass(slots=True)
class _Hand:
    """A schedule on the dial. Fire times up to ``seen`` are dealt with; ``coming`` is the one after it."""

    schedule: Schedule
    timing: timing.Timing
    seen: float
    coming: float = 0.0


class Scheduler(Service):
    """Fires what is due."""

    name = "scheduler"

    def __init__(
        self,
        store: Store,
        runs: Runs,
        consequences: Consequences,
        bus: Bus,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self._store = store
        self._runs = runs
        self._consequences = consequences
        self._bus = bus
        self._clock = clock
        self._wakeup = Wakeup()
        self._hands: dict[str, _Hand] = {}
        self._stale = True

    def reload(self) -> None:
        """Schedules were changed in the store: read them again at once."""
        self._stale = True
        self._wakeup.set()

    def now(self) -> float:
        """The moment on the wall clock."""
        return self._clock()

    async def _work(self) -> None:
        while True:
            await self._wakeup.wait(await self.look())

    async def look(self) -> float:
        """Fire what is due; returns the seconds until there is a reason to look again."""
        if self._stale:
            await self._read()
        now, reasons = self._clock(), [self._clock() + LOOK_S]
        for hand in list(self._hands.values()):
            try:
                if not hand.seen <= now < hand.coming:
                    await self._turn(hand, now)
                hand.seen = now
                reasons.append(hand.coming)
            except Exception:  # whatever it was: it is none of the others' business
                log.exception("schedule %s could not be looked at, trying again", hand.schedule.id)
                reasons.append(now + AGAIN_S)
        return max(0.0, min(reasons) - self._clock())

    async def _turn(self, hand: _Hand, now: float) -> None:
        # A clock that went back: what fired already is in the store, the rest of the time comes again.
        hand.seen = min(hand.seen, now)
        due = hand.timing.latest(hand.seen, now)
        if due is not None:
            await self._fire(hand, due)
        hand.coming = next(hand.timing.fires(now), math.inf)

    async def _read(self) -> None:
        self._stale = False
        try:
            schedules = await self._store.schedules.list()
        except BaseException:  # an end of this loop too: the next has to read them
            self._stale = True
            raise
        before, self._hands = self._hands, {}
        for schedule in schedules:
            if schedule.paused or not schedule.present:
                continue
            known = before.get(schedule.id)
            seen = schedule.since if known is None else max(known.seen, schedule.since)
            try:
                self._hands[schedule.id] = _Hand(schedule, timing.read(schedule.spec), seen)
            except FarhandError as error:  # time zones may go missing on a machine
                log.error("schedule %s cannot fire: %s", schedule.id, error)

    async def _fire(self, hand: _Hand, at: float) -> None:
        now, schedule = self._clock(), hand.schedule
        missed = timing.missed(hand.timing, hand.seen, at)
        fire = Fire(schedule.id, at, now, "started", late=now - at > LATE_S, missed=missed)
        try:
            run, job = await self._prepare(schedule, at)
        except (NotFound, InvalidParameters) as error:
            log.error("schedule %s fired and started nothing: %s", schedule.id, error)
            failed = replace(fire, outcome="failed", message=str(error))
            await self._store.schedules.fire(failed, None)
        else:
            started = replace(fire, message=_sentence(fire), run=run.id)
            fired = self._store.schedules.fire(started, (run, job), timing.skips(schedule.spec))
            await fired.then(self._started)
        self._bus.publish(Notice("schedule"))

    def _started(self, answer: Answer[tuple[Run, Job] | None]) -> None:
        stored = answer.result()
        if stored is not None:
            self._consequences.follow_start(*stored)

    async def _prepare(self, schedule: Schedule, at: float) -> tuple[Run, Job]:
        key = f"schedule:{schedule.id}@{datetime.fromtimestamp(at, UTC).isoformat()}"
        run, job = await self._runs.prepare(schedule.flow, json.loads(schedule.params), key)
        return replace(run, schedule=schedule.id, scheduled_for=at), job


def _sentence(fire: Fire) -> str:
    parts = [f"{fire.fired_at - fire.at:.0f} s late"] if fire.late else []
    if fire.missed:
        count = f"at least {fire.missed}" if fire.missed >= timing.MISSED_MAX else str(fire.missed)
        parts.append(f"in place of {count} earlier {'fire' if fire.missed == 1 else 'fires'}")
    return ", ".join(parts)
