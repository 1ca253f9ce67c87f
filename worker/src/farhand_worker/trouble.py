"""A disk that takes no file. The server is told, so that it sends nothing to begin here, and when it is over.

What comes all the same is given back at once. A worker that kept silent instead would be sent one job after
another, as the one with the most free slots, each for as long as a hand-over may take.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from pathlib import Path
from typing import Any, Callable, Coroutine

from .clock import wall_now
from .protocol import AGENT, Assign, Changed, Event, Exit, as_dict

LOOK_S = 5.0
"""So often it is tried whether the disk takes a file again; not less often than a heartbeat."""

ROOM_BYTES = 256 * 1024
"""A disk has room again when this much can be written."""

_log = logging.getLogger("farhand.worker")


class DiskTrouble:
    """Whether there is any. ``directory`` is where it is tried; ``background`` runs a coroutine beside."""

    def __init__(
        self,
        directory: Path,
        send: Callable[[Any], None],
        background: Callable[[Coroutine[Any, Any, None]], None],
        beat_s: Callable[[], float],
    ) -> None:
        self.reason = ""
        """What is wrong, in words; empty for nothing."""
        self._directory = directory
        self._send = send
        self._background = background
        self._beat_s = beat_s

    def note(self, error: OSError) -> None:
        """Something could not be written."""
        if self.reason:
            return
        self.reason = f"its disk takes no file ({error.strerror or error})"
        _log.error("takes nothing new: %s", error)
        self.say()
        self._background(self._watch())

    def say(self) -> None:
        """Tell the server, which begins each session without knowing."""
        if self.reason:
            self._send(Changed(trouble=self.reason))

    def give_back(self, assign: Assign, error: OSError) -> None:
        """A job cannot be taken: nothing of it is on disk, so this is all that is ever said of it here."""
        self.note(error)
        end = Exit(wall_now(), "stopped", f"the worker could not take it: {self.reason}")
        self._send(Event(assign.job, assign.lease, AGENT, 1, [[Exit.kind, as_dict(end)]]))

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(min(LOOK_S, self._beat_s()))
            if self._takes_a_file():
                break
        self.reason = ""
        _log.info("takes work again: its disk does")
        self._send(Changed(trouble=""))

    def _takes_a_file(self) -> bool:
        path = self._directory / "tried"
        try:
            with open(path, "wb") as file:
                file.write(bytes(ROOM_BYTES))
                file.flush()
        except OSError:
            return False
        finally:
            with contextlib.suppress(OSError):
                os.unlink(path)
        return True
