"""Files from the disk to a socket within the kernel, by threads that never wait long for a slow reader.

What the framework would do instead costs several copies of every byte, on the event loop's own thread.
"""

from __future__ import annotations

import asyncio
import os
import select
from pathlib import Path

TURN_BYTES_MAX = 16 * 1024 * 1024
"""A thread sends no more than this at a stretch: others wait for one too."""

_CALL_BYTES_MAX = 4 * 1024 * 1024
_PATIENCE_MS = 5


class Shortened(OSError):
    """The file ended before all that was promised of it had been sent."""


async def send_file(path: Path, size: int, to: int) -> None:
    """Send the first ``size`` bytes of a file to the socket ``to``, which does not block.

    Raises OSError: when the file cannot be read or is shorter, or when the connection has ended.
    """
    to = os.dup(to)  # stays ours, whatever becomes of the connection meanwhile
    try:
        file = await asyncio.to_thread(os.open, path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            sent = 0
            while sent < size:
                more = await asyncio.to_thread(_push, file, to, sent, min(size - sent, TURN_BYTES_MAX))
                sent += more
                if sent < size:
                    await _writable(to)
        finally:
            os.close(file)
    finally:
        os.close(to)


def _push(file: int, to: int, start: int, count: int) -> int:
    """Send as much as is taken without long waits; how much that was."""
    ready = select.poll()
    ready.register(to, select.POLLOUT)
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
