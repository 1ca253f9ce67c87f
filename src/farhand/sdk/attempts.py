"""One call that runs here: its attempts, its timeout, and the record of how it went."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional

from farhand.errors import NotSerializable, StreamBroken, TimedOut

from . import encoding, events
from .context import STOPPED, Frame, Inner, current, enter, leave
from .deadlines import Abandoned, GiveUp, Limits, is_of_an_outer_call
from .drive import Procedure
from .futures import Future
from .interrupts import is_interruption
from .output import flush_partial_line

if TYPE_CHECKING:
    from .calls import Call

_LOST = 70
"""The exit code of an engine that gives itself up because a call on its main thread does not return."""


def performed(made: Call, future: Optional[Future[Any]] = None) -> Procedure[Any]:
    """The procedure of a call: every attempt, then its record. ``future`` is the call's, on a pool thread."""
    run, step = made.run, made.step
    began = time.time()
    inner: Optional[Inner] = made.inner
    called: Optional[Dict[str, Any]] = None
    if step.is_flow:
        from . import nested  # noqa: PLC0415 - for those who call flows in flows

        inner = nested.inner_of(made)
        called = nested.begun(made, inner)
    if run.recorder.recording:
        more = _more(made, called) if inner is not None or step.options.tags else ""
        run.recorder.write(
            events.task_began(made.key, step.name, began, made.scope, made.index, made.needs(), more)
        )
    frame = Frame(run, made.key, step.name, current(), inner)
    if run.listened_to:
        frame.reported()
    token = enter(frame)
    attempts = [1 if step.options.once else 0]
    try:
        if step.options.once:
            value = yield _work(made)
        else:
            value = yield from _attempted(made, frame, attempts, began, future)
    except Abandoned:
        raise
    except BaseException as error:  # an interruption is an outcome as well
        flush_partial_line()
        _record_failure(made, error, began, attempts[0])
        _tell_hooks(made, inner, began, error=error)
        raise
    finally:
        leave(token)
        if run.listened_to:
            frame.reported()
    flush_partial_line()
    _record_value(made, value, began, attempts[0])
    _tell_hooks(made, inner, began, value)
    if step.options.durable:
        yield from _settled(made)
    return value


def _more(made: Call, called: Optional[Dict[str, Any]]) -> str:
    """What the beginning of few calls says: tags, the flow around it, that it is one."""
    nested = None if made.inner is None else made.inner.key
    return events.members({"tags": made.step.options.tags or None, "nested": nested, "flow": called})


def _tell_hooks(
    made: Call,
    inner: Optional[Inner],
    began: float,
    value: Any = None,
    error: Optional[BaseException] = None,
) -> None:
    """Call the hooks of a task; those of a flow where no server does it."""
    if inner is not None and made.step.is_flow and made.run.hooks_here:
        from . import nested  # noqa: PLC0415 - for those who call flows in flows

        nested.call_hooks(made, inner, began, value, error)
    elif not made.step.is_flow and made.step.hooks and made.run.cancelled != STOPPED:
        from . import telling  # noqa: PLC0415 - hooks are for those who use them

        telling.tell(made, began, value, error)


def _settled(made: Call) -> Procedure[None]:
    """Wait until the outcome is recorded where no loss of this machine takes it away."""
    recorder, check = made.run.recorder, made.run.check
    if made.step.is_async:
        from . import aio  # noqa: PLC0415 - asyncio is for those who use it

        yield lambda: aio.off_the_loop(lambda: recorder.settle(check))
    else:
        yield lambda: recorder.settle(check)


def _attempted(
    made: Call, frame: Frame, attempts: List[int], began: float, future: Optional[Future[Any]]
) -> Procedure[Any]:
    options = made.step.options
    while True:
        attempts[0] += 1
        try:
            return (yield _attempt(made, frame, attempts, began, future))
        except Exception as error:  # any exception of user code is a failed attempt
            if not _worth_another(made, error, attempts[0]):
                raise
            delay_s = options.retry_delay.delay_s(attempts[0])
            _announce_retry(made, error, attempts[0], delay_s)
        yield delay_s
        made.run.check()


def _worth_another(made: Call, error: Exception, attempt: int) -> bool:
    options = made.step.options
    if attempt > options.retries or made.run.cancelled is not None or is_of_an_outer_call(error):
        return False
    if isinstance(error, StreamBroken):  # its flow begins it again
        return False
    return options.retry_on.allows(error)


def _attempt(
    made: Call, frame: Frame, attempts: List[int], began: float, future: Optional[Future[Any]]
) -> Callable[[], Any]:
    """What one attempt calls, or awaits."""
    step = made.step
    limits = Limits(frame, step.options.timeout_s, step.options.silence_timeout_s, step.limit_words)
    if limits.none:
        return _work(made)
    if step.is_async:
        from . import aio  # noqa: PLC0415 - asyncio is for those who use it

        return lambda: aio.limited(_work(made)(), limits)
    give_up = _giving_up(made, attempts, began, future)
    if step.options.process:
        return _work(made, limits, give_up)
    work = _work(made)
    return lambda: limits.run(work, give_up)


def _work(made: Call, limits: Optional[Limits] = None, give_up: GiveUp = None) -> Callable[[], Any]:
    """The function's own part of an attempt. One in a process of its own keeps its limits itself."""
    if made.step.options.process:
        from .processes import run_in_child  # noqa: PLC0415 - it is for those who use it

        return lambda: run_in_child(made, limits, give_up)
    return lambda: made.step.invoke(*made.args, **made.kwargs)


def _announce_retry(made: Call, error: Exception, attempt: int, delay_s: float) -> None:
    options = made.step.options
    again = f"in {delay_s:.3g} s" if delay_s else "at once"
    text = f"{made.step.name}: attempt {attempt} of {options.retries + 1} failed, again {again}"
    nested = None if made.inner is None else made.inner.key
    made.run.log(f"{text}: {encoding.summary_of(error)}", "warning", made.key, nested)


def _giving_up(
    made: Call, attempts: List[int], began: float, future: Optional[Future[Any]]
) -> Optional[Callable[[TimedOut], None]]:
    """What to do when the call has not ended ``grace_s`` after its timeout."""
    run = made.run
    if future is None and not run.disposable:
        return None  # in a script, the main thread can only be waited for

    def give_up(error: TimedOut) -> None:
        run.abandoned = True
        _record_failure(made, error, began, attempts[0])
        if future is None:
            os._exit(_LOST)
        run.log(f"{made.step.name} does not return; the run goes on without it", "warning", made.key)
        run.pool.give_up_a_thread()
        future.settle(error=error)

    return give_up


def _record_value(made: Call, value: Any, began: float, attempts: int) -> None:
    run, key, name = made.run, made.key, made.step.name
    ended = time.time()
    recorder = run.recorder
    body: Optional[Dict[str, Any]] = None
    digests: List[str] = []
    size = 0
    if recorder.recording and made.why_not_kept is None:
        try:
            body, digests = encoding.encode(value, recorder.blobs, recorder.synced)
            size = encoding.size_of(body)
        except NotSerializable as error:
            made.why_not_kept = str(error)
        if body is not None and run.withholds(body):
            made.why_not_kept, body, digests = "it holds a secret", None, []
    run.ledger.remember(key, value)
    if not recorder.recording:
        return
    owner = run.ledger.produced(value, key, size)
    if made.why_not_kept is not None and not made.step.passing:
        run.say_once(f"the outcome of {name} is not kept, a rerun calls it again: {made.why_not_kept}")
    if body is not None:
        body = run.ledger.alias(body, owner)
    kept = made.why_not_kept is None
    more = events.members({"flow": {}}) if made.step.is_flow else ""
    recorder.write(
        events.checkpoint(
            key, name, made.scope, made.index, began, ended, attempts, kept, body, digests, more
        )
    )


def _record_failure(made: Call, error: BaseException, began: float, attempts: int) -> None:
    if not made.run.recorder.recording:
        return
    interrupted = (
        is_interruption(error) and not isinstance(error, KeyboardInterrupt)
    ) or is_of_an_outer_call(error)
    state = "cancelled" if interrupted else "failed"
    body: Dict[str, Any] = {
        "key": made.key,
        "name": made.step.name,
        "state": state,
        "started_at": began,
        "ended_at": time.time(),
        "scope": made.scope,
        "index": made.index,
        "attempts": attempts,
        "kept": made.why_not_kept is None and not interrupted,
        "error": encoding.encode_error(error),
    }
    if made.step.is_flow and made.run.cancelled != STOPPED:
        from . import nested  # noqa: PLC0415 - for those who call flows in flows

        body["flow"] = nested.ended(error, state)
    made.run.recorder.write(events.line("checkpoint", body))
