"""What goes wrong on an event loop where nobody waits for it.

An exception in a callback is told in the log, and that is all a loop does of itself: what the callback had
yet to do is never done, and whoever waits for that waits for ever.
"""

from __future__ import annotations

import asyncio
import traceback
from typing import Any, Callable, Dict, Optional


def notice(loop: asyncio.AbstractEventLoop, fail: Callable[[Optional[BaseException]], None]) -> None:
    """Have ``fail`` called with what breaks off a callback of this program's, once it is in the log.

    What a connection or a task that nobody asks ends with is only told: that is noticed by its end. So is
    what goes wrong within the loop itself.
    """

    def handle(told: asyncio.AbstractEventLoop, context: Dict[str, Any]) -> None:
        told.default_exception_handler(context)
        error = context.get("exception")
        if "handle" in context and error is not None and _is_ours(error):
            fail(error)

    loop.set_exception_handler(handle)


def _is_ours(error: BaseException) -> bool:
    """Whether code of this package had a part in it."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(frame.f_globals.get("__package__") == __package__ for frame in frames)
