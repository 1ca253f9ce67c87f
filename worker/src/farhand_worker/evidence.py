"""Until when engines may run: the agent's side of a lease. Pure; times are seconds on the lease clock.

An attempt may run while ``now - evidence < lease_s``. Evidence is an answer from the server, dated by when
the answered message was *sent*, so that an old answer read late proves nothing new. A refused connection
counts too, since no server listens there to give the job to somebody else, but only for ``outage_s`` after
the last answer, and never for jobs that are strict.
"""

from __future__ import annotations

from .protocol import Times

_NEVER = float("-inf")


class Evidence:
    """What the agent knows of the server, as two deadlines."""

    def __init__(self, times: Times) -> None:
        self.times = times
        self._acknowledged = _NEVER
        self._refused = _NEVER

    def acknowledged(self, sent_at: float) -> None:
        """The server answered what was sent at ``sent_at``."""
        self._acknowledged = max(self._acknowledged, sent_at)

    def refused(self, began_at: float) -> None:
        """A connection begun at ``began_at`` was refused. It never revives a deadline that has passed."""
        within = began_at - self._acknowledged <= self.times.outage_s
        if within and began_at < self.ordinary:
            self._refused = max(self._refused, began_at)

    def rides_outage(self, now: float) -> bool:
        """Whether only refused connections let engines run at ``now``."""
        return self.strict <= now < self.ordinary

    @property
    def ordinary(self) -> float:
        """The deadline of engines that may ride out an outage."""
        return max(self._acknowledged, self._refused) + self.times.lease_s

    @property
    def strict(self) -> float:
        """The deadline of engines that may not."""
        return self._acknowledged + self.times.lease_s
