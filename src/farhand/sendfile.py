"""Files from the disk to a socket within the kernel, by threads that never wait long for a slow reader.

What the framework would do instead costs several copies of every byte, on the event loop's own thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

TURN_BYTES_MAX = 16 * 1024 * 1024
"""A thread sends no more than this at a stretch: others wait for one too."""

T = TypeVar("T")

_CALL_BYTES_MAX = 4 * 1024 * 1024
_PATIENCE_MS = 5


class Shortened(OSError):
    """The file ended before all that was promised of it had been sent."""


async def send_file(path: Path, size: int, to: int) -> None:
    """Send the first ``size`` bytes of a file to the socket ``to``, which does not block.

    Raises OSError: when the file cannot be read or is shorter, or when the connection has ended.
    """
    with contextlib.ExitStack() as open_ones:
        to = os.dup(to)  # stays ours, whatever becomes of the connection meanwhile
        open_ones.callback(os.close, to)
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # it was looked at just before
        open_ones.callback(os.close, file)
        sent = 0
        while (sent := sent + await in_thread(partial(_push, file, to, sent, size - sent))) < size:
            await _writable(to)


async def in_thread(turn: Callable[[], T]) -> T:
    """What a thread returns. A cancellation waits for it, which is short: what it uses is closed then."""
    running = asyncio.get_running_loop().run_in_executor(None, turn)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise


def _push(file: int, to: int, start: int, left: int) -> int:
    """Send as much as is taken without long waits, and no more than a turn; how much that was."""
    ready = select.poll()
    ready.register(to, select.POLLOUT)
    count = min(left, TURN_BYTES_MAX)
    sent = 0
    while sent < count:
        try:
            more = os.sendfile(to, file, start + sent, min(count - sent, _CALL_BYTES_MAX))
        except BlockingIOError:
            if not ready.poll(_PATIENCE_MS):
                break
            continue
        if more == 0:
            raise Shortened("the file ended early")
        sent += more
    return sent


async def _writable(to: int) -> None:
    """Wait until the socket takes something, or has ended."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_writer(to, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(to)
