"""Workers whose engines are only pretended: thousands of jobs cost frames, and not a process each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .peers import COMPLETED, STARTED, Peer, dialled

Reports = list[list[Any]]


class Crowd:
    """One attached worker. What its engines say at a message is the answer of ``says``; no answer, nothing.

    ``held`` has the jobs it holds, ``most`` how many those were at most, ``ended`` how many have ended.
    """

    def __init__(self, peer: Peer, says: Callable[[dict[str, Any]], Reports], beat_s: float) -> None:
        self._peer = peer
        self._says = says
        self._beat_s = beat_s
        self._next: dict[tuple[str, int], int] = {}
        self._over = threading.Event()
        self.most = 0
        self.ended = 0

    @property
    def held(self) -> int:
        """How many jobs it holds now."""
        return len(self._next)

    def run(self) -> None:
        """Beat, and answer what comes, until `stop`."""
        beat, due = 0, 0.0
        while not self._over.is_set():
            if time.monotonic() >= due:
                beat, due = beat + 1, time.monotonic() + self._beat_s
                self._peer.say(type="heartbeat", n=beat)
            message = self._peer.heard(self._beat_s / 2)
            if message is not None:
                self._take(message)

    def stop(self) -> None:
        """Have `run` return."""
        self._over.set()

    def _take(self, message: dict[str, Any]) -> None:
        key = message.get("job"), message.get("lease")
        if message["type"] == "assign":
            self._next.setdefault(key, 1)
            self.most = max(self.most, self.held)
        elif message["type"] == "fenced":
            self._next.pop(key, None)
        if key not in self._next:
            return
        imports = message.get("kind") == "import"
        events = [STARTED, COMPLETED] if imports else self._says(message)
        if not events:
            return
        first = self._next[key]
        self._next[key] = first + len(events)
        self._peer.report(*key, *events, first=first)
        if events[-1] is COMPLETED:
            del self._next[key]
            self.ended += not imports


@contextmanager
def attached(
    url: str, token: str, name: str, parallel: int, beat_s: float, says: Callable[[dict[str, Any]], Reports]
) -> Iterator[Crowd]:
    """A crowd that works on a thread of its own."""
    with dialled(url, token, name) as peer:
        peer.greet(parallel=parallel)
        crowd = Crowd(peer, says, beat_s)
        thread = threading.Thread(target=crowd.run, daemon=True)
        thread.start()
        try:
            yield crowd
        finally:
            crowd.stop()
            thread.join()
