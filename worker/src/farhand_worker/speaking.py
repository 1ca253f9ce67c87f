"""What a worker says on stderr: a line with time and level for each job, so it had better be cheap."""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from typing import Any, Deque, Optional, Tuple


class Stamped(logging.Formatter):
    """Time, level and message. The time's text is made once a second."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")
        self._second = -1
        self._text = ""

    def formatTime(self, record: logging.LogRecord, datefmt: Optional[str] = None) -> str:  # noqa: N802 - its name there
        """The local time to the millisecond."""
        second = int(record.created)
        if second != self._second:
            self._second, self._text = second, time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
        return f"{self._text},{int(record.msecs):03d}"


class Noted(logging.Filter):
    """Lines of one logger that are said later, each with the time at which it was noted.

    What is logged meanwhile is said after them: as a filter of the logger this sees it first.
    """

    def __init__(self, log: logging.Logger) -> None:
        super().__init__()
        self._log = log
        self._lines: Deque[Tuple[float, str, Tuple[Any, ...]]] = deque()
        log.addFilter(self)

    def info(self, text: str, *arguments: Any) -> None:
        """Note a line."""
        self._lines.append((time.time(), text, arguments))

    def say(self) -> None:
        """Say what has been noted."""
        while self._lines:
            at, text, arguments = self._lines.popleft()
            if self._log.isEnabledFor(logging.INFO):
                record = self._log.makeRecord(self._log.name, logging.INFO, "", 0, text, arguments, None)
                record.created, record.msecs = at, at % 1 * 1000
                self._log.callHandlers(record)

    def filter(self, record: logging.LogRecord) -> bool:
        """Let a line pass, after those."""
        self.say()
        return True

    def close(self) -> None:
        """Say what is left, and note no more."""
        self.say()
        self._log.removeFilter(self)


def speak() -> None:
    """Begin to say on stderr what is logged. No line says who logged it, so nobody looks for that."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Stamped())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # pyright: ignore[reportPrivateUsage]
