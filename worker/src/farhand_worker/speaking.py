"""What a worker says on stderr: a line with time and level for each job, so it had better be cheap."""

from __future__ import annotations

import logging
import sys
import time
from typing import Optional


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


def speak() -> None:
    """Begin to say on stderr what is logged. No line says who logged it, so nobody looks for that."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Stamped())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # pyright: ignore[reportPrivateUsage]
