"""When the spool of an engine is looked at: when its bell rings, and what it is told of that."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from .engine import Engine
from .reports import Reports


class Bells:
    """Of one attempt. ``tell`` has what was found sent to the server, at once."""

    def __init__(self, reports: Reports, tell: Callable[[], None]) -> None:
        self._reports = reports
        self._tell = tell
        self._engine: Optional[Engine] = None
        self._ack_wanted = False

    def begin(self, engine: Engine) -> None:
        """An engine has the job: as if it had rung, since most jobs end before that would be answered."""
        self._engine = engine
        engine.bell.set(self._look)

    def end(self) -> None:
        """It has it no more."""
        if self._engine is not None:
            self._engine.bell.clear()
            self._engine = None

    def rung(self, header: Dict[str, Any]) -> None:
        """The engine has written something: now or soon it is looked for."""
        self._ack_wanted |= bool(header.get("ack"))
        if self._engine is None:
            return
        bell = self._engine.bell
        if header.get("urgent"):
            bell.clear()
            self._look()
        elif not bell.is_set:
            bell.set(self._look)

    def recorded(self, source: str, number: int) -> None:
        """The server has recorded up to ``number``: an engine that waits for that, or for room, goes on."""
        before = self._reports.acked_bytes
        if self._reports.acknowledge(source, number) and self._engine is not None:
            read = self._reports.seen_bytes
            if read - before > self._reports.bytes_max // 2 or self._ack_wanted:
                self._ack_wanted = False
                self._arm(read)

    def _look(self) -> None:
        if self._reports.gone:
            return
        read = self._reports.look()
        self._tell()
        self._arm(read)  # after that: the engine wakes up for it

    def _arm(self, read: int) -> None:
        if self._engine is not None:
            self._engine.channel.send("arm", read=read, acked=self._reports.acked_bytes)
