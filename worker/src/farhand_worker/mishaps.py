"""What goes wrong on an event loop where nobody waits for it.

An exception in a callback is told in the log, and that is all a loop does of itself: what the callback had
yet to do is never done, and whoever waits for that waits for ever.
"""

from __future__ import annotations

import asyncio
from typing import Any, Callable, Dict, Optional


def notice(loop: asyncio.AbstractEventLoop, fail: Callable[[Optional[BaseException]], None]) -> None:
    """Have ``fail`` called with what breaks off a callback of the loop, once it is in the log.

    What a connection or a task that nobody asks ends with is only told: that is noticed by its end.
    """

    def handle(told: asyncio.AbstractEventLoop, context: Dict[str, Any]) -> None:
        told.default_exception_handler(context)
        if "handle" in context:
            fail(context.get("exception"))

    loop.set_exception_handler(handle)
