"""Where this code runs: which run, and inside which call of it."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextvars import ContextVar, Token
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterable,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Type,
)

from farhand.errors import Cancelled, NotInFlow

from . import events
from .checkpoints import Ledger
from .forks import on_fork
from .interrupts import interrupter, uninterrupted, watcher
from .limits import IMPORT_S
from .pool import Pool
from .references import hex_of

if TYPE_CHECKING:
    from farhand_worker.masking import Masker

    from .feeds import Feed
    from .upstream import Attempt

Place = Callable[..., Any]
Ask = Callable[[str, Dict[str, Any]], Any]
AskLater = Callable[[str, Dict[str, Any], Callable[[Dict[str, Any]], None]], None]

_LOOP_ANSWERS_S = 0.2
"""A loop that has not come to a function by then is blocked by code that awaits nothing."""

STOPPED = "stopped"
"""The reason of a cancel that ends the attempt without an end of its run: no result is written."""


class Recorder:
    """Where the events of a run go. This one keeps nothing: a run that is not recorded."""

    blobs: Optional[Path] = None
    recording = False
    synced = True
    """Whether what is saved here is kept here: it is then on disk before a line names it."""
    mask: Optional[Callable[[str], str]] = None
    """What hides the secrets in a line, once one has been read."""
    watch: Optional[Callable[[str], None]] = None
    """Who is given each line that is kept, beside."""

    def write(self, text: str, urgent: bool = False) -> None:
        """Append one event line; ``urgent`` ones are delivered at once."""

    def settle(self, check: Callable[[], None]) -> None:
        """Wait until all that was written is safe from a loss of this machine, as far as it can be."""

    def blob_path(self, digest: str) -> Path:
        """The file of a digest. Raises OSError or FarhandError when there is none."""
        saved = self.saved(digest)
        if saved is None:
            raise FileNotFoundError(digest)
        return saved

    def value_path(self, digest: str) -> Path:
        """The same for who reads it at once and does not give it away."""
        return self.blob_path(digest)

    def saved(self, digest: str) -> Optional[Path]:
        """The file of a digest that was saved here, if it was."""
        path = self.blobs / hex_of(digest) if self.blobs is not None else None
        return path if path is not None and path.exists() else None

    def show(self, formatter: Any, record: Any) -> None:
        """A record of the logging module, for whoever watches the terminal."""
        terminal = getattr(sys.stderr, "original", None) or sys.stderr
        if terminal is not None:
            terminal.write(formatter.format(record) + "\n")

    def close(self) -> None:
        """Nothing more is written."""

    def blobs_or_temporary(self) -> Path:
        """Where files can be saved, also by a run that is not recorded."""
        if self.blobs is None:
            # Imported here, since only a run that is not recorded needs them, and only for its files.
            import atexit  # noqa: PLC0415
            import shutil  # noqa: PLC0415
            import tempfile  # noqa: PLC0415

            self.blobs = Path(tempfile.mkdtemp(prefix="farhand-"))
            atexit.register(shutil.rmtree, self.blobs, ignore_errors=True)
        return self.blobs


class Run:
    """A run, or the placed call of one, that goes on in this process."""

    # What most runs never change is the class's: each attribute that an instance begins with takes its time.
    ask_later: Optional[AskLater] = None
    """Asks the server what it may answer late, and calls back."""
    local_path: Optional[Callable[[Any], None]] = None
    """Told of a path that is used, on a machine that shares no disk with the server."""
    masker: Optional[Masker] = None
    concluded = False
    heard_at = 0.0
    cancelled: Optional[str] = None
    reach_loop: Optional[Callable[[Callable[[], None]], None]] = None
    """Calls a function soon on the loop of an ``async def`` body, while there is one."""
    hurried = False
    """A limit has passed: what waits on a loop goes on at once."""
    blocked = False
    abandoned = False
    equip: Optional[Callable[[Pool], None]] = None
    """Makes what else calls need, beside their pool, before anybody has that."""
    _pool: Optional[Pool] = None

    def __init__(self, run_id: str, flow: str, recorder: Recorder, **facts: Any) -> None:
        self.id = run_id
        self.flow = flow
        self.recorder = recorder
        self.attempt: int = facts.get("attempt", 1)
        self.called: Dict[str, str] = facts.get("called") or {}
        """Key → run id of the flows that an earlier attempt had called and that have not ended."""
        self.hooks_here: bool = facts.get("hooks_here", False)
        self.ledger: Ledger = facts.get("ledger") or Ledger()
        self.place: Optional[Place] = facts.get("place")
        self.ask: Optional[Ask] = facts.get("ask")
        self.feeds: Dict[str, Feed] = {}
        """Key of a call → what it yields, for those who read it along."""
        self.attempt_elsewhere: Optional[Callable[[Iterable[str]], Attempt]] = None
        """Begins an attempt that yields, in the child of a process task; its parent knows who reads."""
        self.own_key: str = facts.get("own_key", "")
        self.along: Sequence[str] = facts.get("along") or ()
        """What the placed call that this is yields to nodes that read along."""
        self.declared: List[str] = facts.get("declared") or []
        self.secrets: Dict[str, str] = {}
        self.created_at = time.time()
        self.end: Dict[str, Any] = {}
        self.listened_to: List[Frame] = []
        self.grace_s: float = facts.get("grace_s", 10.0)
        self.import_s: float = facts.get("import_s", IMPORT_S)
        self.disposable: bool = facts.get("disposable", False)
        self.main_thread = threading.get_ident()
        self.loop_tasks: Set[Any] = set()
        self.said: Dict[str, bool] = {}
        self._on_cancel: List[Callable[[], None]] = []
        self._lock = threading.Lock()

    @property
    def pool(self) -> Pool:
        """The threads of its calls. It is made for the first who asks: many jobs call nothing."""
        return self._pool or self._first_pool()

    @uninterrupted
    def _first_pool(self) -> Pool:
        with _making:
            if self._pool is None:
                pool = Pool()
                if self.equip is not None:
                    self.equip(pool)
                self._pool = pool
            return self._pool

    @property
    def calls(self) -> bool:
        """Whether it may have called something."""
        return self._pool is not None

    def cancel(self, reason: str) -> None:
        """Raise `Cancelled` in everything this run does here, at once.

        An ``async def`` body is cancelled by its loop; once more, and a loop that is blocked is interrupted.
        """
        with self._lock:
            again, self.cancelled = self.cancelled is not None, reason
            callbacks = list(self._on_cancel)
        if self.calls:
            self.pool.drop_waiting(Cancelled(reason))
        for callback in callbacks:
            callback()
        self.interrupt_calls(Cancelled)
        if self.reach_loop is None:
            interrupter.raise_in(self.main_thread, Cancelled, lambda: True)
        elif again:
            self._interrupt_blocked(self.reach_loop)

    def _interrupt_blocked(self, reach_loop: Callable[[Callable[[], None]], None]) -> None:
        answers: List[bool] = []
        reach_loop(lambda: answers.append(True))

        def interrupt() -> None:
            blocked = lambda: not answers and self.reach_loop is reach_loop  # noqa: E731
            interrupter.raise_in(self.main_thread, Cancelled, blocked)

        watcher.after(_LOOP_ANSWERS_S, interrupt)

    @uninterrupted
    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the run is cancelled; at once if it is already."""
        with self._lock:
            if self.cancelled is None:
                self._on_cancel.append(callback)
                return
        callback()

    def interrupt_calls(self, kind: Type[BaseException]) -> None:
        """Raise ``kind`` in the calls that run on threads of the pool."""
        for thread in list(self.pool.running) if self.calls else ():
            interrupter.raise_in(thread, kind, lambda thread=thread: thread in self.pool.running)

    def check(self) -> None:
        """Raise `Cancelled` when the run has been."""
        if self.cancelled is not None:
            raise Cancelled(self.cancelled)

    def heard(self) -> None:
        """There was a report whose call is not known: output of a child process."""
        self.heard_at = time.monotonic()

    def log(
        self, text: str, level: str = "info", task: Optional[str] = None, nested: Optional[str] = None
    ) -> None:
        """One line of the log, in farhand's own words."""
        self.recorder.write(events.log(time.time(), text, "log", level, task, nested))

    def withholds(self, body: Dict[str, Any]) -> bool:
        """Whether an encoded value holds a secret and so must not be recorded; its blob is removed."""
        if self.masker is None:
            return False
        from .secrets import taken_back  # noqa: PLC0415 - secrets are for those who use them

        return taken_back(self, body)

    def wait_for_calls(self) -> None:
        """Wait for every call that was submitted; a failure that nobody has looked at is said."""
        if self.calls:
            self.pool.wait()
            self.tell_unseen_failures()

    def tell_unseen_failures(self) -> None:
        """Say which calls failed though nobody has asked for their results."""
        for future in self.pool.unseen_failures():
            if future.error is not None:
                text = f"{type(future.error).__name__}: {future.error}"
                self.log(
                    f"{future.name} failed and nobody asked for its result: {text}", "warning", future.key
                )

    def say_once(self, text: str) -> None:
        """A warning that comes once a run."""
        if self.said.setdefault(text, True) is True:
            self.said[text] = False
            self.log(text, "warning")


_making = threading.Lock()
"""Held by who makes the pool of a run."""


class Inner(NamedTuple):
    """A flow that was called inside of a run: the key of that call, its name, and the id of its own run."""

    key: str
    flow: str
    id: str


class Frame:
    """A flow body or a call on the way; ``key`` is the scope of what it calls, empty for the flow body.

    ``inner`` is the innermost flow it is part of, where that is not the run's own.
    """

    __slots__ = ("heard_at", "inner", "key", "name", "parent", "run", "waiting")

    def __init__(
        self,
        run: Run,
        key: str,
        name: str,
        parent: Optional[Frame] = None,
        inner: Optional[Inner] = None,
    ) -> None:
        self.run = run
        self.key = key
        self.name = name
        self.parent = parent
        self.inner = inner
        self.heard_at = 0.0
        self.waiting = 0
        """How many of its threads wait for values of streams."""

    @property
    def nested(self) -> Optional[str]:
        """The key by which events say which flow they come from."""
        return None if self.inner is None else self.inner.key

    def reported(self) -> None:
        """This call has said something: whoever listens to it or to a caller of it has heard that."""
        if not self.run.listened_to:
            return
        now = time.monotonic()
        frame: Optional[Frame] = self
        while frame is not None:
            frame.heard_at = now
            frame = frame.parent


_frame: ContextVar[Optional[Frame]] = ContextVar("farhand_frame", default=None)


class _Root:
    """The frame of threads that user code started by itself, which inherit no context."""

    def __init__(self) -> None:
        self.frame: Optional[Frame] = None
        on_fork(self._forked)

    def _forked(self) -> None:
        self.frame = None
        _frame.set(None)


_root = _Root()


def current() -> Optional[Frame]:
    """The frame this code runs in; None outside of any run."""
    return _frame.get() or _root.frame


def enter(frame: Optional[Frame]) -> Token[Optional[Frame]]:
    """Begin ``frame`` in this thread; give the token to `leave`."""
    return _frame.set(frame)


def leave(token: Token[Optional[Frame]]) -> None:
    """End the frame that `enter` began."""
    try:
        _frame.reset(token)
    except ValueError:
        return  # a coroutine that nobody awaits any more is closed wherever it is collected


def set_root(frame: Optional[Frame]) -> None:
    """The frame of threads without one."""
    _root.frame = frame


class RunInfo:
    """The run that code finds itself in."""

    __slots__ = ("attempt", "flow", "id", "task")

    def __init__(self, frame: Frame) -> None:
        inner = frame.inner
        self.id = frame.run.id if inner is None else inner.id
        self.flow = frame.run.flow if inner is None else inner.flow
        self.attempt = frame.run.attempt
        self.task = frame.name if frame.key != (frame.nested or "") else None

    def __repr__(self) -> str:
        return f"<run {self.id} of {self.flow}, attempt {self.attempt}>"


def current_run() -> RunInfo:
    """The run this code is part of: ``id``, ``flow``, ``attempt``, ``task``. Raises `NotInFlow`.

    A flow that is called inside of another has a run of its own.
    """
    frame = current()
    if frame is None:
        raise NotInFlow("current_run() works only inside a running flow or task")
    return RunInfo(frame)


def home() -> Path:
    """The directory where scripts leave their records: FARHAND_HOME, or ~/.farhand."""
    return Path(os.environ.get("FARHAND_HOME") or Path.home() / ".farhand")
