"""What a person has told this worker by way of the server: how many slots, and whether to take work."""

from __future__ import annotations

import logging
from typing import Any, Callable, Dict

from .engines import Pool
from .holdings import Holdings
from .inventory import cores_here
from .options import warn_of_crowding
from .protocol import Drained, Probe, Set
from .status import counted

_log = logging.getLogger("farhand.worker")


class Orders:
    """The orders in force. A worker that was told to drain stays, so that it can be told to go on.

    ``look`` is called when it may have nothing left to do, ``beat`` says at once that it is there.
    """

    def __init__(
        self,
        parallel: int,
        pool: Pool,
        holdings: Holdings,
        look: Callable[[], object],
        beat: Callable[[], None],
    ) -> None:
        self.parallel = parallel
        self.draining = False
        self._said = False
        self._pool = pool
        self._holdings = holdings
        self._look = look
        self._beat = beat
        self.handlers: Dict[type, Callable[[Any], None]] = {Set: self._set, Probe: self._probed}

    def drained(self) -> None:
        """Nothing is held any more, and nothing new is taken: say so, once."""
        if not self._said:
            self._said = True
            self._holdings.send(Drained())

    def _set(self, order: Set) -> None:
        if order.parallel is not None:
            if order.parallel < self.parallel:
                self._holdings.lines.give_back("the worker has fewer slots now")
            self.parallel = order.parallel
            self._pool.idle_max = max(1, order.parallel)
            _log.info("has %s from now on", counted(order.parallel, "slot"))
            warn_of_crowding(order.parallel, cores_here())
        if order.draining is not None and order.draining != self.draining:
            self.draining, self._said = order.draining, False
            _log.info("told to take %s", "nothing new" if order.draining else "work again")
            if order.draining:
                self._holdings.drain()
            self._look()

    def _probed(self, _: Probe) -> None:
        self._beat()
