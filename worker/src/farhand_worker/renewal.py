"""Keeps what is known of the server in step with who acts on it: the warden's deadlines, and the holdings."""

from __future__ import annotations

import asyncio
from typing import Callable, Optional

from .clock import lease_now
from .engines import Pool
from .evidence import Evidence
from .holdings import Holdings
from .protocol import Times
from .warden_link import WardenLink


class Renewal:
    """Until when engines may run, told to the warden at every change; ``heard`` is called at each answer."""

    def __init__(self, holdings: Holdings, pool: Pool, heard: Callable[[], None]) -> None:
        self._holdings = holdings
        self._pool = pool
        self._heard = heard
        self._evidence = Evidence(holdings.times)
        self._warden: Optional[WardenLink] = None
        self._watch: Optional[asyncio.TimerHandle] = None

    @property
    def rides_outage(self) -> bool:
        """Whether only refused connections let engines run now."""
        return self._evidence.rides_outage(lease_now())

    def watch_over(self, warden: Optional[WardenLink]) -> None:
        """There is another warden, or none."""
        self._warden = warden
        if warden is not None:
            warden.margin_s = self._holdings.times.margin_s
            self._renewed()

    def welcomed(self, times: Times, sent_at: float) -> None:
        """The server answered a hello sent at ``sent_at``, and says by which times it goes."""
        self.check()
        self._holdings.times = self._evidence.times = times
        if self._warden is not None:
            self._warden.margin_s = times.margin_s
        self.acknowledged(sent_at)

    def acknowledged(self, sent_at: float) -> None:
        """The server answered what was sent at ``sent_at``."""
        self._evidence.acknowledged(sent_at)
        self._heard()
        self._renewed()

    def refused(self, began_at: float) -> None:
        """A connection begun at ``began_at`` was refused."""
        self._evidence.refused(began_at)
        self._renewed()

    def check(self) -> bool:
        """Give up what has outlived its lease; whether that is everything. Asked before every frame."""
        now = lease_now()
        if now < self._evidence.strict:
            return False
        everything = now >= self._evidence.ordinary
        self._holdings.expire(strict_only=not everything)
        if everything:
            self._pool.kill_all()
        return everything

    def close(self) -> None:
        """Watch no more."""
        if self._watch is not None:
            self._watch.cancel()

    def _renewed(self) -> None:
        """Evidence has changed: tell the warden, and look again when it runs out."""
        if self._warden is not None and self._evidence.ordinary > 0:
            self._warden.deadlines(self._evidence.ordinary, self._evidence.strict)
        self._watch_deadline()

    def _watch_deadline(self) -> None:
        self.close()
        now = lease_now()
        ahead = [at - now for at in (self._evidence.ordinary, self._evidence.strict) if at > now]
        loop = asyncio.get_running_loop()
        self._watch = loop.call_later(min(ahead), self._at_deadline) if ahead else None

    def _at_deadline(self) -> None:
        self.check()
        self._watch_deadline()
