"""The one thread that writes, and the commits its operations share.

Every waiting operation joins the open batch, each inside its own savepoint (the first one has the whole
transaction for that, where the dialect can do without), until nothing waits or the batch is 20 ms old;
then one COMMIT makes all of them durable and their callers hear of it together. A single write is
committed at once. What can go wrong:

- an operation raises: it is rolled back to its savepoint, its caller gets the error, its siblings stay;
- an operation's error has ended the transaction (full disk, I/O error), or COMMIT fails: nothing of the
  batch was kept, all of it fails with `StoreFailed`, and the writer goes on with the next batch;
- an operation returns a cursor: its caller gets None, since a cursor that is let go on another thread would
  reset a statement that this one may be running again;
- the dialect says that it would pass the second time (PostgreSQL restarted, or chose this transaction to
  end a deadlock): the whole batch is run again, so an operation must give the same when run twice;
- the thread itself ends: everything that waits, and all that comes later, fails with `StoreFailed`, and
  ``on_death`` is called, on the event loop, because a server that cannot write must stop.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, TypeVar

from ..errors import StoreClosed, StoreFailed
from .answers import Answer
from .guard import Connection
from .session import Session
from .sqlite import failed

BATCH_S_MAX = 0.020
"""A batch takes no further operation once it is this old."""

T = TypeVar("T")


class _Waiting:
    """An operation, what its caller waits for, and how it went."""

    __slots__ = ("answer", "error", "operation", "value")

    def __init__(self, operation: Callable[[Connection], Any]) -> None:
        self.operation = operation
        self.answer: Answer[Any] = Answer()
        self.value: Any = None
        self.error: Exception | None = None


class _TransactionEnded(Exception):
    """An operation's error took the whole transaction with it."""


class Writer:
    """Runs operations on the one writing connection. Created, used and closed on one event loop."""

    def __init__(self, session: Session, on_death: Callable[[BaseException], None] | None = None) -> None:
        self.commits = 0
        self.operations = 0
        self.answering: AbstractContextManager[Any] = nullcontext()
        """Entered while those of one commit are answered."""
        self._session = session
        self._on_death = on_death
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # orders a submission against the writer's end
        self._refusal: Callable[[], Exception] | None = None  # an error of its own for every caller
        self._batch: list[_Waiting] = []
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="farhand-store-writer", daemon=True)
        self._thread.start()

    def submit(self, operation: Callable[[Connection], T]) -> Answer[T]:
        """Queue an operation; the answer comes once its commit is on disk."""
        waiting = _Waiting(operation)
        with self._lock:
            if self._refusal is None:
                self._queue.put(waiting)
            else:
                waiting.answer.fail(self._refusal())
        return waiting.answer

    async def close(self) -> None:
        """Commit what waits, then end the thread. May be called more than once."""
        with self._lock:
            if self._refusal is None:
                self._refusal = StoreClosed
                self._queue.put(None)
        await asyncio.shield(self._ended)

    # ------------------------------------------------------------ on the writer's thread

    def _run(self) -> None:
        try:
            while (waiting := self._queue.get()) is not None and self._commit(waiting):
                pass
        except BaseException as error:  # noqa: BLE001 whatever ends the thread is reported as its death
            self._die(error)
        self._call(self._note_end)

    def _commit(self, first: _Waiting) -> bool:
        """One batch. False when the writer was told to close."""
        session, closing = self._session, False
        self._batch = batch = [first]
        try:
            session.begin()
            deadline = time.monotonic() + BATCH_S_MAX
            self._apply(first, marked=session.marks_first)
            while time.monotonic() < deadline:
                try:
                    waiting = self._queue.get_nowait()
                except queue.Empty:
                    break
                if waiting is None:
                    closing = True
                    break
                batch.append(waiting)
                self._apply(waiting)
            session.commit()
            self.commits += 1
        except (*session.errors, _TransactionEnded) as error:
            self._retry(batch, error)
        self._call(self._answer, batch)
        self._batch = []
        return not closing

    def _retry(self, batch: list[_Waiting], error: Exception) -> None:
        """Run a batch again for as long as the dialect has hope, then fail it."""
        session, attempt = self._session, 0
        while True:
            session.rollback()
            cause = error.__cause__ if isinstance(error, _TransactionEnded) and error.__cause__ else error
            pause_s = session.again_s(cause, attempt) if isinstance(cause, Exception) else None
            if pause_s is None:
                break
            attempt += 1
            time.sleep(pause_s)
            try:
                session.begin()
                for waiting in batch:
                    self._apply(waiting)
                session.commit()
                self.commits += 1
                return
            except (*session.errors, _TransactionEnded) as again:
                error = again
        for waiting in batch:
            waiting.error = failed(error)

    def _apply(self, waiting: _Waiting, marked: bool = True) -> None:
        """Run one operation; one that is not ``marked`` is the first, and undone with the transaction."""
        session = self._session
        self.operations += 1
        waiting.value = waiting.error = None
        if marked:
            session.mark()
        try:
            value = waiting.operation(session.guarded)
            waiting.value = None if isinstance(value, session.cursor) else value
        except Exception as error:  # whatever it is, it belongs to the caller
            if not session.active or session.again_s(error, 0) is not None:
                raise _TransactionEnded(str(error)) from error
            if marked:
                session.undo()
            else:
                session.rollback()
                session.begin()
            waiting.error = session.translated(error)
            return
        if not session.active:
            raise _TransactionEnded("an operation hid the error that ended the transaction")
        if marked:
            session.keep()

    def _die(self, cause: BaseException) -> None:
        with suppress(*self._session.errors):
            self._session.rollback()

        def failure() -> StoreFailed:
            return StoreFailed(f"the store's writer has ended ({cause!r}); restart the server")

        with self._lock:
            self._refusal = failure
        waiting = list(self._batch)
        while True:
            try:
                left = self._queue.get_nowait()
            except queue.Empty:
                break
            if left is not None:
                waiting.append(left)
        for one in waiting:
            one.error = failure()
        self._call(self._answer, waiting)
        if self._on_death is not None:
            self._call(self._on_death, cause)

    def _call(self, callback: Callable[..., None], *args: Any) -> None:
        """Run ``callback`` on the event loop; a loop that is gone has nobody left who waits."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *args)

    def _note_end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    def _answer(self, batch: list[_Waiting]) -> None:
        with self.answering:
            for waiting in batch:
                if waiting.error is not None:
                    waiting.answer.fail(waiting.error)
                else:
                    waiting.answer.succeed(waiting.value)
