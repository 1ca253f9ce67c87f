"""The streams of a declared flow's nodes, as their flow sees them: attempt after attempt, until the end.

A node that reads along is begun with a stream once that has a value, or has ended. It follows one attempt of
the node that yields. If that one breaks, the reader is begun again, with the next attempt.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, FrozenSet, Iterable, List, Optional, Tuple

from farhand.errors import NodeSkipped, NotSerializable

from . import encoding, events
from .context import Frame, Run, current
from .futures import Future
from .interrupts import uninterrupted
from .questions import REFUSED
from .streams import BROKEN, ENDED, WAIT_S, Listed, Pages, Stream, refusal
from .upstream import Attempt, Nearby

Pick = Tuple[str, "Future[Any]"]


class Feed:
    """What one node yields. ``along`` are the streams that nodes in other processes read along."""

    def __init__(self, run: Run, node: str, along: Iterable[str]) -> None:
        self.along: FrozenSet[str] = frozenset(along)
        self._run = run
        self._node = node
        self._lock = threading.Lock()
        self._picks: List[Pick] = []
        self._attempt: Optional[Attempt] = None
        self._elsewhere = ""
        self._key = ""
        self._ended: Optional[Dict[str, List[Any]]] = None
        self._error: Optional[BaseException] = None

    @property
    def key(self) -> str:
        """The key of the node's first call, by which those know it that take from it."""
        return self._key

    def called(self, key: str, elsewhere: bool) -> None:
        """The node is called, for the first time or again; ``elsewhere``: as a job of its own."""
        self._run.feeds[key] = self
        with self._lock:
            self._key = self._key or key
            self._elsewhere = key if elsewhere else ""
            picks = list(self._picks)
        if elsewhere:
            for pick in picks:
                self._ask(key, pick)

    def begin(self, attempt: Attempt) -> None:
        """An attempt of the node begins in this process."""
        attempt.when_ready = self._look
        with self._lock:
            before, self._attempt = self._attempt, attempt
        if before is not None:
            before.end(BROKEN, "it was begun again")

    def pick(self, name: str) -> Future[Any]:
        """The stream, once it has a value or has ended; fails if the node has failed for good."""
        future: Future[Any] = Future(self._key, self._node)
        pick = (name, future)
        with self._lock:
            self._picks.append(pick)
            elsewhere = self._elsewhere
        self._look()
        if elsewhere and not future.done():
            self._ask(elsewhere, pick)
        return future

    def finish(self, delivered: Dict[str, Any], error: Optional[BaseException]) -> None:
        """The node has ended for good."""
        with self._lock:
            if error is None:
                self._ended = {name: value for name, value in delivered.items() if isinstance(value, list)}
            self._error, attempt = error, self._attempt
        if error is not None and attempt is not None:  # one that was given up still yields
            attempt.end(BROKEN, encoding.summary_of(error))
        self._look()

    @uninterrupted
    def _look(self) -> None:
        """Give out what can be given out."""
        with self._lock:
            ready = [(pick, made) for pick in self._picks if (made := self._made(pick[0])) is not None]
            self._picks = [pick for pick in self._picks if all(pick is not given for given, _ in ready)]
        for (_, future), (stream, error) in ready:
            future.settle(stream, error)

    def _made(self, name: str) -> Optional[Tuple[Any, Optional[BaseException]]]:
        if self._error is not None:
            return None, self._error
        if self._ended is not None:
            return Stream(name, Listed(self._ended[name])), None
        attempt = self._attempt
        if attempt is None or attempt.state == BROKEN or not (attempt.values[name] or attempt.state == ENDED):
            return None
        key = attempt.key if name in self.along else ""
        return Stream(name, Nearby(attempt, name, key)), None

    def _ask(self, key: str, pick: Pick) -> None:
        """Ask the server whether there is something to begin with."""
        name, future = pick
        assert self._run.ask_later is not None  # the node is a job of its own, so there is a server

        def ready(answer: Dict[str, Any]) -> None:
            with self._lock:
                self._picks = [one for one in self._picks if one is not pick]
            if answer["state"] == REFUSED:
                future.settle(error=refusal(name, answer["message"]))
            else:
                future.settle(Stream(name, Pages(self._run, key, name)))

        args = {"key": key, "name": name, "ready": True, "wait_s": WAIT_S}
        self._run.ask_later("stream", args, ready)


def skipped(node: str) -> NodeSkipped:
    """Why nodes do not run that take from one that failed."""
    return NodeSkipped(f"not run, since node {node!r} failed")


# ---------------------------------------------------------------- those who yield


def attempt_of(names: Iterable[str]) -> Attempt:
    """An attempt begins here to yield these streams; whoever reads them along is told."""
    frame = current()
    if frame is None or not frame.key:
        return Attempt(names)
    if frame.run.attempt_elsewhere is not None:
        return frame.run.attempt_elsewhere(names)
    feed = frame.run.feeds.get(frame.key)
    along = feed.along if feed is not None else frame.run.along if frame.key == frame.run.own_key else ()
    attempt = Attempt(names, frame.key, _writing(frame, frozenset(along)) if along else None)
    attempt.begin()
    if feed is not None:
        feed.begin(attempt)
    return attempt


def _writing(frame: Frame, along: FrozenSet[str]) -> Callable[..., None]:
    """What reports an attempt's streams to the server."""
    run, key = frame.run, frame.key

    def write(name: str, step: str, *, value: Any = None, message: str = "", urgent: bool = False) -> None:
        if name not in along:
            return
        body: Dict[str, Any] = {"key": key, "name": name, "step": step, "message": message or None}
        digests: List[str] = []
        if step == "value":
            body["value"], digests = encoding.encode(value, run.recorder.blobs)
            if run.withholds(body["value"]):
                raise NotSerializable(
                    f"a value of the stream {name!r} holds a secret; let its reader declare it"
                )
        run.recorder.write(events.line("yielded", body, digests), urgent)

    return write
