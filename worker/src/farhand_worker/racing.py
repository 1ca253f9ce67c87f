"""Work that goes on side by side until the first part of it has ended."""

from __future__ import annotations

import asyncio
from typing import Any, Coroutine, List


async def until_one_ends(*parts: Coroutine[Any, Any, Any]) -> List[asyncio.Task[Any]]:
    """Run the parts until one has ended, in whatever way; the others are cancelled, and are over as well.

    Returns the task of each part, in their order; one that was cancelled says so.
    """
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return tasks
