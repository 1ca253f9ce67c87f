"""The order within one turn of the event loop: what is said to workers is sent first, then the rest is done.

A commit may be followed by many messages to one worker, which then share a frame, by messages to several, and
by much that no worker waits for: notices to whoever watches, counts, timers. The workers go on with what they
were sent while the rest is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol


class Sending(Protocol):
    """Somebody who has something to send."""

    def flush(self) -> None:
        """Send it."""
        ...


class Turn:
    """Entered by whoever may say several things at once: they are sent, and the rest is done, at its end."""

    def __init__(self) -> None:
        self._waiting: dict[Sending, None] = {}
        self._rest: list[Callable[[], object]] = []
        self._entered = False

    def send(self, sending: Sending) -> None:
        """Let it send when what the loop does now is done, or else in its next turn."""
        if not self._waiting and not self._entered:
            asyncio.get_running_loop().call_soon(self._flush)
        self._waiting[sending] = None

    def afterwards(self, act: Callable[[], object]) -> None:
        """Do what no worker waits for, once it is sent what it does wait for; at once if nothing is gathered.

        What ``act`` raises is told as what any callback of the loop raises.
        """
        if self._entered:
            self._rest.append(act)
        else:
            act()

    def __enter__(self) -> None:
        self._entered = True

    def __exit__(self, *_: object) -> None:
        self._flush()
        while self._rest:
            rest, self._rest = self._rest, []
            for act in rest:
                _do(act)
        self._entered = False
        self._flush()

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for sending in waiting:
            _do(sending.flush)


def _do(act: Callable[[], object]) -> None:
    """Do it; what goes wrong is told, as a mistake of one is nobody else's."""
    try:
        act()
    except Exception as error:  # noqa: BLE001 whatever it is, the others wait
        context = {"message": f"{act!r} failed", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)
