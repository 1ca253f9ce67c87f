"""What a worker says on stderr: a line with time and level for each job, so it had better be cheap."""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from typing import Any, Deque, Iterator, List, NamedTuple, Optional, Sequence


class Line(NamedTuple):
    """A line that informs. No record is made of it for a handler that has ``say``: that costs the most."""

    at: float
    text: str


class Stamped(logging.Formatter):
    """Time, level and message. The time's text is made once a second."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")
        self._second = -1
        self._text = ""

    def formatTime(self, record: logging.LogRecord, datefmt: Optional[str] = None) -> str:  # noqa: N802 - its name there
        """The local time to the millisecond."""
        return self._stamp(int(record.created), int(record.msecs))

    def written(self, line: Line) -> str:
        """A line as its record would be formatted."""
        return f"{self._stamp(int(line.at), int(line.at % 1 * 1000))} INFO {line.text}\n"

    def _stamp(self, second: int, milliseconds: int) -> str:
        if second != self._second:
            self._second, self._text = second, time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
        return f"{self._text},{milliseconds:03d}"


class Speaker(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes what is logged to a stream, and lines that come together at once."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._stamped = Stamped()
        self.setFormatter(self._stamped)

    def say(self, lines: Sequence[Line]) -> None:
        """Write some lines."""
        self.acquire()
        try:
            self.stream.write("".join(map(self._stamped.written, lines)))
            self.flush()
        except (OSError, ValueError):  # whoever read it is gone; what is logged then raises nothing either
            pass
        finally:
            self.release()


class Noted(logging.Filter):
    """Lines of one logger that are said later, each with the time at which it was noted.

    What is logged meanwhile is said after them: as a filter of the logger this sees it first.
    """

    def __init__(self, log: logging.Logger) -> None:
        super().__init__()
        self._log = log
        self._lines: Deque[Line] = deque()
        log.addFilter(self)

    def info(self, text: str) -> None:
        """Note a line."""
        self._lines.append(Line(time.time(), text))

    def say(self) -> None:
        """Say what has been noted."""
        lines: List[Line] = []
        while self._lines:  # one by one: another thread may be saying them too
            lines.append(self._lines.popleft())
        if not lines or not self._log.isEnabledFor(logging.INFO):
            return
        for handler in _handlers(self._log):
            if handler.level <= logging.INFO:
                _say(handler, self._log.name, lines)

    def filter(self, record: logging.LogRecord) -> bool:
        """Let a line pass, after those."""
        self.say()
        return True

    def close(self) -> None:
        """Say what is left, and note no more."""
        self.say()
        self._log.removeFilter(self)


def _handlers(log: Optional[logging.Logger]) -> Iterator[logging.Handler]:
    """Those of a logger, and of those above it."""
    while log is not None:
        yield from log.handlers
        log = log.parent if log.propagate else None


def _say(handler: logging.Handler, name: str, lines: Sequence[Line]) -> None:
    say: Any = getattr(handler, "say", None)
    if say is not None:
        say(lines)
        return
    for line in lines:
        record = logging.LogRecord(name, logging.INFO, "", 0, line.text, None, None)
        record.created, record.msecs = line.at, line.at % 1 * 1000
        handler.handle(record)


def speak() -> None:
    """Begin to say on stderr what is logged. No line says who logged it, so nobody looks for that."""
    logging.basicConfig(level=logging.INFO, handlers=[Speaker(sys.stderr)])
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # pyright: ignore[reportPrivateUsage]
