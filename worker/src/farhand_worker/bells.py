"""When the spool of an engine is looked at: when its bell rings, and what it is told of that."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from .engine import Engine
from .reports import Reports

AGAIN_S = 1.0
"""So long after a spool could not be read it is looked at again."""


class Bells:
    """Of one attempt. ``tell`` has what was found sent to the server, at once."""

    def __init__(self, reports: Reports, tell: Callable[[], None]) -> None:
        self._reports = reports
        self._tell = tell
        self._engine: Optional[Engine] = None
        self._ack_wanted = False
        self._known_acked = 0
        """So much of the spool is recorded, as far as the engine knows: the rest counts against its limit."""

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
        if header.get("unanswered"):
            self._tell_new()
        elif header.get("urgent"):
            bell.clear()
            self._look()
        elif not bell.is_set:
            bell.set(self._look)

    def recorded(self, source: str, number: int) -> None:
        """The server has recorded up to ``number``: an engine that waits for that, or for room, goes on."""
        reports = self._reports
        if reports.acknowledge(source, number) and self._engine is not None:
            unknown = reports.seen_bytes - self._known_acked
            if unknown > reports.bytes_max // 2 or self._ack_wanted:
                self._ack_wanted = False
                self._arm(reports.seen_bytes)

    def _look(self) -> None:
        read = self._tell_new()
        if read is not None:
            self._arm(read)  # after that: the engine wakes up for it

    def _tell_new(self) -> Optional[int]:
        """Send what is new; how far the spool goes, where that can be seen."""
        if self._reports.gone:
            return None
        try:
            read = self._reports.look()
        except OSError:  # its disk may do better in a moment
            if self._engine is not None:
                self._engine.bell.set(self._look, AGAIN_S)
            return None
        self._tell()
        return read

    def _arm(self, read: int) -> None:
        if self._engine is not None:
            self._known_acked = self._reports.acked_bytes
            self._engine.channel.send("arm", read=read, acked=self._known_acked)
