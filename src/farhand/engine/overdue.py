"""Ends attempts that outlive their timeout or silence although their worker is there.

Engine and agent keep both limits themselves; this is for the case that they do not. It is lenient: counted
from when reports were recorded here, ``grace_s + lease_s + margin_s`` beyond the limit, and only while the
worker is attached, is heard, and has told all that it has to tell. A worker that cannot be asked is the
rescuer's business, whose lease runs out.
"""

from __future__ import annotations

import logging
import time

from farhand_worker import protocol

from ..lifecycle import Ending
from ..store import Store
from .consequences import Consequences
from .fleet import Fleet
from .member import Holding, Member
from .service import Service, Wakeup, delay_until

log = logging.getLogger("farhand")

_AGAIN_S = 1.0


class Overdue(Service):
    """The loop over the limits of what runs."""

    name = "overdue"

    def __init__(self, store: Store, fleet: Fleet, consequences: Consequences) -> None:
        super().__init__()
        self._store = store
        self._fleet = fleet
        self._consequences = consequences
        self._wakeup = Wakeup()

    def look(self) -> None:
        """Something with a limit has started."""
        self._wakeup.set()

    async def _work(self) -> None:
        looked_at = 0.0
        while True:
            now = time.monotonic()
            due = [due_at for _, holding in self._limited() for due_at, _ in self._limits(holding, now)]
            due_at = min(due, default=None)
            if due_at is not None and due_at <= looked_at:
                due_at = looked_at + _AGAIN_S  # it was due at the last look, and could not be ended then
            await self._wakeup.wait(delay_until(due_at, time.monotonic))
            looked_at = time.monotonic()
            await self._end_what_is_due(looked_at)

    async def _end_what_is_due(self, now: float) -> None:
        for member, holding in self._limited():
            passed = [ending for due_at, ending in self._limits(holding, now) if due_at <= now]
            if passed and self._can_be_asked(member, holding):
                await self._end(member, holding, passed[0])

    def _limited(self) -> list[tuple[Member, Holding]]:
        return [
            (member, holding)
            for member in self._fleet
            for holding in member.holdings.values()
            if holding.started_at is not None
        ]

    def _limits(self, holding: Holding, now: float) -> list[tuple[float, Ending]]:
        """When each limit is passed for good (monotonic seconds), and how that ends.

        A job that is blocked has nothing to say.
        """
        settings, times = holding.job.settings, self._fleet.times
        beyond = times.grace_s + times.lease_s + times.margin_s
        found: list[tuple[float, Ending]] = []
        if settings.timeout_s is not None and holding.started_at is not None:
            message = settings.timeout_words or (
                f"ran longer than its timeout of {settings.timeout_s:g} s, and its worker did not end it"
            )
            found.append(
                (holding.started_at + settings.timeout_s + beyond, Ending("timeout", "timeout", message))
            )
        if settings.silence_timeout_s is not None and holding.reported_at is not None:
            message = settings.silence_words or (
                f"was silent for longer than {settings.silence_timeout_s:g} s, and its worker did not end it"
            )
            ending = Ending("silence", "silence", message)
            heard_at = now if holding.job.blocked else holding.reported_at
            found.append((heard_at + settings.silence_timeout_s + beyond, ending))
        return found

    def _can_be_asked(self, member: Member, holding: Holding) -> bool:
        fresh = time.monotonic() - (member.heard_at or 0.0) <= 2 * self._fleet.times.heartbeat_s
        return member.attached and fresh and holding.job.id not in member.behind

    async def _end(self, member: Member, holding: Holding, ending: Ending) -> None:
        job, lease = holding.job, holding.lease
        try:
            await self._consequences.of(self._store.reports.end(job.id, lease, ending, time.time()))
        except Exception:  # whatever it was: others are due as well
            log.exception("job %s could not be ended, trying again", job.id)
            return
        log.warning("job %s on %s %s", job.id, member.name, ending.message)
        self._fleet.release(job.id, lease)
        if member.link is not None:
            member.link.send(protocol.Fenced(job.id, lease, ending.message, ending.reason))
