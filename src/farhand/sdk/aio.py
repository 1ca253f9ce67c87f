"""Calls of ``async def`` tasks and flows. Imported, and asyncio with it, only where there is one.

A call's key is settled when it is made, before anything is awaited, so it follows the order of the code and
not that of the loop. Its work is awaited where the call is; ``.submit()`` makes a task of the running loop.
Cancellation and timeouts are those of asyncio: a coroutine meets them where it awaits.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from typing import Any, Callable, Coroutine, Dict, List, Optional, Tuple, TypeVar

from farhand.errors import Cancelled, SilentTooLong, TimedOut

from . import calls, loops
from .attempts import performed
from .calls import Call
from .context import Run
from .deadlines import Deadline, Hearing, Limits, Silence, Words
from .drive import Procedure
from .futures import Future
from .interrupts import CLEANING_S, watcher
from .steps import Step

T = TypeVar("T")

_DEPTH_MAX = 100
_running: set[asyncio.Task[Any]] = set()
"""The loop itself holds its tasks weakly."""


async def run(procedure: Procedure[T]) -> T:
    """Run a procedure (see `drive`), awaiting what it asks for."""
    try:
        wanted = next(procedure)
        while True:
            try:
                answer = await (asyncio.sleep(wanted) if isinstance(wanted, (int, float)) else wanted())
            except BaseException as error:  # noqa: BLE001 - the procedure decides
                wanted = procedure.throw(error)
            else:
                wanted = procedure.send(answer)
    except StopIteration as end:
        return end.value
    finally:
        procedure.close()  # it was left in the middle by an interruption that came between two steps


def run_on_new_loop(procedure: Procedure[T], of: Optional[Run] = None) -> T:
    """The same on a thread that runs no loop; ``of`` is the run whose job may be blocked meanwhile."""
    return asyncio.run(run(procedure)) if of is None else loops.run(run(procedure), of)


async def off_the_loop(function: Callable[[], T]) -> T:
    """Await what blocks its thread."""
    return await asyncio.get_running_loop().run_in_executor(None, function)


def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    """A coroutine's value, on a loop of its own."""
    return asyncio.run(coroutine)


async def called(made: Call) -> Any:
    """Await a call that was made: replayed, run on this loop, or run elsewhere."""
    replayed = calls.replay(made)
    if replayed is not None:
        return replayed[0]
    await _settle_inputs(made)
    if calls.placed_elsewhere(made):
        return await calls.submit_placed(made, Future(made.key, made.step.name))
    if not made.step.is_async:
        return await calls.submit_made(made, Future(made.key, made.step.name))
    return await run(performed(made))


def submitted(made: Call, future: Future[Any]) -> Future[Any]:
    """Run the call as a task of the running loop; ``future`` settles with it."""
    future.loop_thread = threading.get_ident()
    made.run.pool.track(future)
    task = asyncio.ensure_future(_run_into(made, future))
    _running.add(task)
    made.run.loop_tasks.add(task)
    task.add_done_callback(_running.discard)
    task.add_done_callback(made.run.loop_tasks.discard)
    return future


async def _run_into(made: Call, future: Future[Any]) -> None:
    try:
        await _settle_inputs(made)
        value = await run(performed(made))
    except asyncio.CancelledError as error:
        future.settle(error=Cancelled(made.run.cancelled or f"{made.step.name} was cancelled"))
        raise error
    except BaseException as error:  # noqa: BLE001 - whatever it is belongs to the future
        future.settle(error=error)
    else:
        future.settle(value)


async def _settle_inputs(made: Call) -> None:
    for future in made.awaited:
        await future
    made.resolved()


async def ended(future: Future[Any]) -> None:
    """Wait, on this loop, until a call has ended in whatever way."""
    loop = asyncio.get_running_loop()
    arrived = loop.create_future()

    def arrive() -> None:
        if not arrived.done():
            arrived.set_result(None)

    future.when_done(lambda: _soon(loop, arrive))
    await arrived


def _soon(loop: asyncio.AbstractEventLoop, function: Any) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(function)


async def limited(coroutine: Coroutine[Any, Any, T], limits: Limits) -> T:
    """The coroutine's value, or `TimedOut`. What ignores its cancellation for ``grace_s`` is left behind."""
    if limits.none:
        return await coroutine
    task = asyncio.ensure_future(coroutine)
    try:
        with Hearing(limits.frame) as hearing:
            passed = await _first_passed(task, limits, hearing)
    except asyncio.CancelledError:
        await _cancel({task}, limits.frame.run)
        raise
    if passed is None:
        return task.result()
    await _cancel({task}, limits.frame.run)
    raise passed


async def _first_passed(task: asyncio.Task[Any], limits: Limits, hearing: Hearing) -> Optional[TimedOut]:
    """Wait for the end of ``task``, or for the first of its limits: the exception of that one."""
    loop = asyncio.get_running_loop()
    passed: asyncio.Future[TimedOut] = loop.create_future()

    def arrive(error: TimedOut) -> None:
        if not passed.done():
            passed.set_result(error)

    def pass_limit(error: TimedOut) -> None:
        limits.frame.run.hurried = True
        _soon(loop, lambda: arrive(error))

    watch = _Watch(limits, hearing, pass_limit)
    try:
        done, _ = await asyncio.wait({task, passed}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        watch.close()
    return None if task in done else passed.result()


class _Watch:
    """Looks whether a limit has passed, beside the loop: so no timer of its own keeps a job from being
    blocked while it waits."""

    def __init__(self, limits: Limits, hearing: Hearing, passed: Callable[[TimedOut], None]) -> None:
        self._limits = limits
        self._hearing = hearing
        self._passed = passed
        self._began = time.monotonic()
        self._closed = False
        self._timer: Any = None
        self._look()

    def close(self) -> None:
        """Nobody waits any more."""
        self._closed = True
        if self._timer is not None:
            watcher.cancel(self._timer)

    def _look(self) -> None:
        timeout_s, silence_s = self._limits.timeout_s, self._limits.silence_limit_s
        words = self._limits.words or Words(self._limits.frame.name, Deadline.words, Silence.words)
        ends: List[Tuple[float, TimedOut]] = []
        if timeout_s is not None:
            error = TimedOut(words.of_timeout(timeout_s))
            ends.append((self._began + timeout_s, error))
        if silence_s is not None:
            error = SilentTooLong(words.of_silence(silence_s))
            ends.append((self._hearing.heard_at + silence_s, error))
        due_at, error = min(ends, key=lambda end: end[0])
        now = time.monotonic()
        if now >= due_at:
            self._passed(error)
        elif not self._closed:
            self._timer = watcher.after(due_at - now, self._look)


async def _cancel(tasks: set[asyncio.Task[Any]], run: Run) -> None:
    """Cancel tasks and wait for their end; one that goes on costs the engine."""
    if not tasks:
        return
    for task in tasks:
        task.cancel()
    done, left = await asyncio.wait(tasks, timeout=run.grace_s)
    run.abandoned |= bool(left)
    for task in done:
        if not task.cancelled():
            task.exception()  # looked at: the loop need not complain


def _cancel_once_more(loop: asyncio.AbstractEventLoop, task: Optional[asyncio.Task[Any]]) -> None:
    """Cancel the body, unless something on its loop still deals with having been cancelled: later, then."""
    if task is None or task.done():
        return
    if any(_deals_with_cancellation(other.get_coro()) for other in asyncio.all_tasks(loop)):
        loop.call_later(CLEANING_S, _cancel_once_more, loop, task)
    else:
        task.cancel()


def _deals_with_cancellation(coroutine: Any) -> bool:
    """Whether a coroutine, or what it awaits, stands in a handler of one: it cleans up, or saves.

    A suspended coroutine keeps what it is handling where only the garbage collector looks.
    """
    for _ in range(_DEPTH_MAX):
        if coroutine is None:
            return False
        if any(isinstance(held, asyncio.CancelledError) for held in gc.get_referents(coroutine)):
            return True
        coroutine = getattr(coroutine, "cr_await", None)
    return False


# ---------------------------------------------------------------- bodies


async def body(step: Step[Any], args: Tuple[Any, ...], kwargs: Dict[str, Any], limits: Limits) -> Any:
    """The body of an ``async def`` flow or placed task, and then every call that it has submitted."""
    run = limits.frame.run
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    run.reach_loop = lambda function: _soon(loop, function)
    run.on_cancel(lambda: _soon(loop, lambda: _cancel_once_more(loop, task)))
    try:
        value = await limited(step.body(*args, **kwargs), limits)
        await _until_idle(run)
    except BaseException as error:  # whatever ended the body, its calls end too
        run.pool.drop_waiting(Cancelled("the flow has ended"))
        run.interrupt_calls(Cancelled)
        await _cancel(set(run.loop_tasks), run)
        if isinstance(error, asyncio.CancelledError) and run.cancelled is not None:
            raise Cancelled(run.cancelled) from None
        raise
    return value


def run_body(step: Step[Any], limits: Limits, *args: Any, **kwargs: Any) -> Any:
    """The same from plain code, on a loop of its own."""
    try:
        return loops.run(body(step, args, kwargs, limits), limits.frame.run)
    finally:
        limits.frame.run.reach_loop = None


async def _until_idle(run: Run) -> None:
    loop = asyncio.get_running_loop()
    idle = asyncio.Event()
    run.pool.when_idle(lambda: _soon(loop, idle.set))
    await idle.wait()
    run.tell_unseen_failures()
