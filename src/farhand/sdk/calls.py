"""One call of a task or nested flow inside a run: replayed, run here, or placed elsewhere."""

from __future__ import annotations

import contextvars
import os
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from farhand.errors import Cancelled, NotSerializable, NotSupported, TaskFailed, TimedOut, WorkerLost

from . import encoding, events
from .context import Frame, enter, leave
from .deadlines import Abandoned, Deadline, is_of_an_outer_call
from .futures import Future, find_futures, resolve, when_all_done
from .output import flush_partial_line
from .steps import Step

_LOST = 70
"""The exit code of an engine that gives itself up because a call on its main thread does not return."""


class Call:
    """A call on its way. ``why_not_kept`` says why its outcome cannot be replayed, if it cannot."""

    __slots__ = ("args", "index", "key", "kwargs", "run", "scope", "settled", "step", "why_not_kept")

    def __init__(
        self,
        step: Step[Any],
        frame: Frame,
        args: Tuple[Any, ...],
        kwargs: Dict[str, Any],
        index: Optional[int] = None,
    ) -> None:
        self.step = step
        self.run = frame.run
        self.scope = frame.key
        self.args = args
        self.kwargs = kwargs
        self.index = index
        self.settled = False
        inputs = step.inputs(args, kwargs)
        self.key, self.why_not_kept = self.run.ledger.key_of(self.scope, step.identity, inputs)

    def resolved(self) -> None:
        """Wait for the futures among the arguments and put their results in their place."""
        if find_futures(self.args) or find_futures(self.kwargs.values()):
            self.args = resolve(self.args)
            self.kwargs = resolve(self.kwargs)


# ---------------------------------------------------------------- the three ways to call


def call(step: Step[Any], frame: Frame, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
    """Call ``step`` and wait for it."""
    frame.run.check()
    made = Call(step, frame, args, kwargs)
    replayed = replay(made)
    if replayed is not None:
        return replayed[0]
    made.resolved()
    if placed_elsewhere(made):
        return submit_placed(made, Future(made.key, step.name)).result()
    return execute(made)


def submit(
    step: Step[Any],
    frame: Frame,
    args: Tuple[Any, ...],
    kwargs: Dict[str, Any],
    index: Optional[int] = None,
) -> Future[Any]:
    """Call ``step`` on a thread of the run's pool, or on another machine; returns at once."""
    frame.run.check()
    made = Call(step, frame, args, kwargs, index)
    future: Future[Any] = Future(made.key, step.name, index)
    if _settle_from_kept(made, future):
        return future
    elsewhere = placed_elsewhere(made)
    context = contextvars.copy_context()

    def go_on() -> None:
        try:
            if elsewhere:
                made.resolved()
                submit_placed(made, future)
            else:
                made.run.pool.submit(lambda: context.run(_run_into, made, future), future)
        except BaseException as error:  # noqa: BLE001 - whatever it is belongs to the future
            future.settle(error=error)

    waiting_for = [f for f in find_futures((*args, *kwargs.values())) if not f.done()]
    if waiting_for:
        made.run.pool.track(future)
        when_all_done(waiting_for, go_on)
    else:
        go_on()
    return future


def _settle_from_kept(made: Call, future: Future[Any]) -> bool:
    try:
        replayed = replay(made)
    except BaseException as error:  # noqa: BLE001 - the kept failure, whatever it was
        future.settle(error=error)
        return True
    if replayed is None:
        return False
    future.settle(replayed[0])
    return True


def _run_into(made: Call, future: Future[Any]) -> None:
    """On a thread of the pool: run the call and settle its future."""
    try:
        made.run.check()
        made.resolved()
        value = execute(made, future)
    except Abandoned:
        return
    except BaseException as error:  # noqa: BLE001 - whatever it is belongs to the future
        future.settle(error=error)
    else:
        future.settle(value)


# ---------------------------------------------------------------- replay


def replay(made: Call) -> Optional[Tuple[Any]]:
    """The value of an earlier attempt in a tuple, or its exception; None when there is none to use."""
    run = made.run
    kept = run.ledger.kept(made.key)
    if kept is None:
        return run.ledger.remembered(made.key)
    if kept["state"] != "completed":
        raise failure_of(kept)
    body = kept.get("value") or {"enc": "json", "text": "null"}
    owner = run.ledger.returned_by(body.get("of", made.key))
    if owner is not None:
        return (owner,)
    try:
        value = encoding.decode(body, run.recorder.blob_path)
    except (encoding.CannotDecode, OSError) as error:
        run.ledger.forget(made.key)
        run.log(f"the kept result of {made.step.name} cannot be loaded, so it runs again: {error}", "warning")
        return None
    return (run.ledger.restored(value, made.key, body, encoding.size_of(body)),)


def failure_of(outcome: Dict[str, Any]) -> BaseException:
    """The exception of an outcome that is not completed."""
    error = outcome.get("error")
    if outcome["state"] == "crashed":
        return WorkerLost(error.get("message", "") if error else "")
    if outcome["state"] == "cancelled":
        return TaskFailed(f"{outcome.get('name', 'the call')} was cancelled")
    if error is None:
        return TaskFailed(outcome.get("message", ""))
    return encoding.decode_error(error)


# ---------------------------------------------------------------- here


def execute(made: Call, future: Optional[Future[Any]] = None) -> Any:
    """Run the call in this thread, with its retries and its timeout, and record how it went."""
    run, step = made.run, made.step
    recording = run.recorder.recording
    began = time.time()
    if recording:
        run.recorder.write(events.task_began(made.key, step.name, began, made.scope, made.index))
    token = enter(Frame(run, made.key, step.name))
    attempts = [0]
    try:
        value = _attempted(made, attempts, began, future)
    except Abandoned:
        raise
    except BaseException as error:
        flush_partial_line()
        _record_failure(made, error, began, attempts[0])
        raise
    finally:
        leave(token)
    flush_partial_line()
    _record_value(made, value, began, attempts[0])
    return value


def _attempted(made: Call, attempts: List[int], began: float, future: Optional[Future[Any]]) -> Any:
    step, options = made.step, made.step.options
    while True:
        attempts[0] += 1
        try:
            if options.timeout_s is None:
                return step.function(*made.args, **made.kwargs)
            deadline = Deadline(step.name, options.timeout_s)
            give_up = _giving_up(made, attempts, began, future)
            work: Callable[[], Any] = lambda: step.function(*made.args, **made.kwargs)  # noqa: E731
            return deadline.run(work, made.run.grace_s, give_up)
        except Exception as error:  # any exception of user code is a failed attempt
            if not _worth_another(made, error, attempts[0]):
                raise
            delay_s = options.retry_delay.delay_s(attempts[0])
            _announce_retry(made, error, attempts[0], delay_s)
            time.sleep(delay_s)
            made.run.check()


def _worth_another(made: Call, error: Exception, attempt: int) -> bool:
    options = made.step.options
    if attempt > options.retries or made.run.cancelled is not None or is_of_an_outer_call(error):
        return False
    return options.retry_on.allows(error)


def _announce_retry(made: Call, error: Exception, attempt: int, delay_s: float) -> None:
    options = made.step.options
    again = f"in {delay_s:.3g} s" if delay_s else "at once"
    text = f"{made.step.name}: attempt {attempt} of {options.retries + 1} failed, again {again}"
    made.run.log(f"{text}: {encoding.summary_of(error)}", "warning", made.key)


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
            body, digests = encoding.encode(value, recorder.blobs)
            size = encoding.size_of(body)
        except NotSerializable as error:
            made.why_not_kept = str(error)
    run.ledger.remember(key, value)
    if not recorder.recording:
        return
    owner = run.ledger.produced(value, key, size)
    if made.why_not_kept is not None:
        run.say_once(f"the outcome of {name} is not kept, a rerun calls it again: {made.why_not_kept}")
    if body is not None:
        body = run.ledger.alias(body, owner)
    kept = made.why_not_kept is None
    recorder.write(
        events.checkpoint(key, name, made.scope, made.index, began, ended, attempts, kept, body, digests)
    )


def _record_failure(made: Call, error: BaseException, began: float, attempts: int) -> None:
    if not made.run.recorder.recording:
        return
    interrupted = isinstance(error, Cancelled) or is_of_an_outer_call(error)
    body = {
        "key": made.key,
        "name": made.step.name,
        "state": "cancelled" if interrupted else "failed",
        "started_at": began,
        "ended_at": time.time(),
        "scope": made.scope,
        "index": made.index,
        "attempts": attempts,
        "kept": made.why_not_kept is None and not interrupted,
        "error": encoding.encode_error(error),
    }
    made.run.recorder.write(events.line("checkpoint", body))


# ---------------------------------------------------------------- elsewhere


def placed_elsewhere(made: Call) -> bool:
    """Whether the call is a job of its own. Raises `NotSupported` where no machine can be asked for."""
    options = made.step.options
    if not options.places:
        return False
    if made.run.place is not None:
        return True
    if options.policy == "prefer":
        return False
    wanted = f"device {', '.join(options.labels)}" if options.labels else f"runs_on={options.runs_on!r}"
    raise NotSupported(
        f"{made.step.name} asks for {wanted}, which a script cannot reach; start the flow on a server with "
        f"`farhand runs start {made.run.flow}`, or use device_policy='prefer'"
    )


def submit_placed(made: Call, future: Future[Any]) -> Future[Any]:
    """Ask for the call to be run elsewhere; the future settles when its outcome arrives."""
    place = made.run.place
    if place is None:
        raise NotSupported("there is no server to place this call")
    place(made, future)
    return future
