"""``get_logger``: a logger whose records become log events of the run, with their level."""

from __future__ import annotations

import logging
import time
from typing import Dict, Optional

from . import events
from .context import current
from .output import LINE_CHARS_MAX, cut

_LEVELS = ((logging.ERROR, "error"), (logging.WARNING, "warning"), (logging.INFO, "info"))
_FORMATTER = logging.Formatter("%(message)s")
_TERMINAL = logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S")


_known: Dict[str, logging.Logger] = {}


class RunLogger(logging.Logger):
    """Inside a run, records go to the run's log; outside, to the handlers of the logger of that name."""

    def callHandlers(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name of logging
        frame = current()
        if frame is None:
            logging.getLogger(self.name).callHandlers(record)
            return
        try:
            text = _FORMATTER.format(record)
        except Exception as error:  # noqa: BLE001 - arguments that do not fit must not end the run
            text = f"{record.msg!r} (its arguments do not fit: {error})"
        level = next((name for number, name in _LEVELS if record.levelno >= number), "debug")
        recorder = frame.run.recorder
        frame.reported()
        for content in text.split("\n"):
            shown = content if len(content) <= LINE_CHARS_MAX else cut(content, frame.run)
            recorder.write(events.log(time.time(), shown, "log", level, frame.key, frame.nested))
        recorder.show(_TERMINAL, record)


def get_logger(name: Optional[str] = None) -> logging.Logger:
    """A logger for flows and tasks, at level INFO. Its lines carry the call that wrote them."""
    frame = current()
    wanted = name or (frame.run.flow if frame is not None else "farhand")
    if wanted not in _known:
        _known[wanted] = RunLogger(wanted, logging.INFO)
    return _known[wanted]
