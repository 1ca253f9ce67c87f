"""Calls that run as jobs of their own: asked for with a ``call`` event, ended by an ``outcome``."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Tuple

from farhand.errors import Cancelled, NotSerializable

from . import calls, encoding, events
from .blocking import Blocking
from .calls import Call
from .channel import Channel
from .context import STOPPED, Run
from .fronts import front_of
from .futures import Future
from .pool import Pool
from .questions import Questions

Outcome = Dict[str, Any]

_AT_HAND_BYTES_MAX = 2 * 1024 * 1024


def _is_at_hand(outcome: Outcome, value: Dict[str, Any]) -> bool:
    """Whether a value lies in a file that is known, and is soon loaded: its thread would cost as much."""
    return "path" in outcome and encoding.size_of(value) <= _AT_HAND_BYTES_MAX


def _refuse_secrets(made: Call, args: Dict[str, Any]) -> None:
    """Arguments are stored and shown, and masked ones would be of no use."""
    if made.run.withholds(args):
        raise NotSerializable(
            f"an argument of {made.step.name} holds a secret; declare it with @task(secrets=[…]) and let "
            f"{made.step.name} read it"
        )


def _more(made: Call) -> str:
    """What few calls say: whose results they take, the flow around them, that they are one."""
    needs = made.needs() or None
    if needs is None and made.inner is None and not made.step.is_flow:
        return ""
    called: Optional[Dict[str, Any]] = None
    if made.step.is_flow:
        from . import nested  # noqa: PLC0415 - for those who call flows in flows

        called = nested.begun(made, nested.inner_of(made))
    key = None if made.inner is None else made.inner.key
    return events.members({"needs": needs, "nested": key, "flow": called})


class Placer:
    """The open placed calls of one job. An outcome may come twice, or before it is waited for."""

    def __init__(
        self,
        run: Run,
        pool: Pool,
        tell_blocked: Callable[[bool], None] = lambda _: None,
        channel: Optional[Channel] = None,
    ) -> None:
        self._run = run
        self._questions = Questions(None if channel is None else channel.request_later, self._delivered)
        self._lock = threading.Lock()
        self._open: Dict[str, Tuple[Call, Future[Any]]] = {}
        self._early: Dict[str, Outcome] = {}
        self._blocking = Blocking(run, self._has_open, tell_blocked, channel)
        pool.waits = self._blocking
        run.on_cancel(self._cancel)

    def _has_open(self) -> bool:
        return bool(self._open or self._questions.open)

    def place(self, made: Call, future: Future[Any], awaited: bool = False) -> None:
        """Ask for ``made``; ``future`` settles with its outcome. Raises `NotSerializable`.

        ``awaited``: who asks waits for it at once.
        """
        run, step = self._run, made.step
        args, digests = encoding.encode(
            [list(made.args), made.kwargs],
            run.recorder.blobs,
            run.recorder.synced,
            f"the arguments of {made.step.name}",
            front_of(made.args, made.kwargs, made.hashed),
        )
        _refuse_secrets(made, args)
        run.pool.track(future)
        with self._lock:
            early = self._early.pop(made.key, None)
            if early is None:
                self._open[made.key] = (made, future)
        if early is not None:
            self._settle(made, future, early)
            return
        feed = run.feeds.get(made.key)
        along = {"along": sorted(feed.along)} if feed is not None and feed.along else None
        step_text = step.placed_text if along is None else step.placed_with(along)
        at, more = time.time(), _more(made)
        line = events.placed(made.key, step_text, args, at, made.scope, made.index, more, digests)
        run.recorder.write(line, urgent=True)
        if not awaited:
            self._blocking.listen()
        self._blocking.rested()
        if run.cancelled is not None:
            self._cancel()

    def close(self) -> None:
        """The job has ended: no answer is waited for any more."""
        self._questions.close()

    def ask(self, kind: str, args: Dict[str, Any], arrived: Callable[[Dict[str, Any]], None]) -> None:
        """Ask the server what it may answer late; ``arrived`` gets that."""
        self._questions.ask(kind, args, arrived)
        self._blocking.rested()

    def _delivered(self, deliver: Callable[[], None]) -> None:
        self._blocking.deliver(deliver)

    def arrived(self, key: str, outcome: Outcome, path: Optional[Path] = None) -> None:
        """An outcome, from the channel; ``path`` is of its value's file, where the agent knows it already."""
        if path is not None:
            outcome = {**outcome, "path": path}
        with self._lock:
            known = self._open.pop(key, None)
            if known is None:
                self._early[key] = outcome
                return
        made, future = known
        self._blocking.deliver(lambda: self._settle(made, future, outcome))

    def proceed(self, number: int) -> None:
        """The job has its slot again, after its wait of that number."""
        self._blocking.proceed(number)

    def _settle(self, made: Call, future: Future[Any], outcome: Outcome) -> None:
        if outcome["state"] != "completed":
            self._end(made, future, outcome, error=calls.failure_of(outcome))
            return
        body = outcome.get("value") or {"enc": "json", "text": "null"}
        if "digest" in body and not _is_at_hand(outcome, body):
            # Fetching asks the agent, whose answer this very thread would have to read.
            threading.Thread(
                target=self._load, args=(made, future, outcome, body), name="farhand-load", daemon=True
            ).start()
        else:
            self._load(made, future, outcome, body)

    def _load(self, made: Call, future: Future[Any], outcome: Outcome, body: Dict[str, Any]) -> None:
        run, path = self._run, outcome.get("path")
        try:
            value = encoding.decode(body, run.recorder.value_path if path is None else lambda _: path)
        except BaseException as error:  # noqa: BLE001 - whatever keeps the value from being loaded is the call's end
            future.settle(error=error)
            return
        run.ledger.produced(value, future.key, encoding.size_of(body))
        self._end(made, future, outcome, value=value)

    def _end(self, made: Call, future: Future[Any], outcome: Outcome, **ended: Any) -> None:
        """Settle the future; before that the hooks of the task are called, on a thread that may wait."""
        if made.step.is_flow or not made.step.hooks or made.run.cancelled == STOPPED:
            future.settle(**ended)
            return
        from . import telling  # noqa: PLC0415 - hooks are for those who use them

        began = outcome.get("started_at") or time.time()
        state = "cancelled" if outcome.get("state") == "cancelled" else None
        telling.tell_aside(made, began, lambda: future.settle(**ended), state=state, **ended)

    def _cancel(self) -> None:
        with self._lock:
            known, self._open = list(self._open.values()), {}
        for made, future in known:
            self._end(made, future, {}, error=Cancelled(self._run.cancelled or "cancelled"))
