"""One call of a task or nested flow inside a run: replayed, run here, or placed elsewhere."""

from __future__ import annotations

import contextvars
import sys
from typing import Any, Dict, List, Optional, Tuple

from farhand.errors import NotSupported, TaskFailed, WorkerLost

from . import drive, encoding
from .attempts import performed
from .context import Frame
from .deadlines import Abandoned
from .fronts import Hashed
from .futures import SCALARS, Future, find_futures, resolve, when_all_done
from .steps import Step

PASSING = "it is good for this attempt alone"
NEEDS_MAX = 1000
"""So many producers of a call's arguments are recorded; a call that takes more shows the first ones."""


class Call:
    """A call on its way. ``why_not_kept`` says why its outcome cannot be replayed, if it cannot.

    ``awaited`` are the futures that must have ended before: those among the arguments, whose results are
    put in their place, and those of ``wait_for``. ``hashed`` are large inputs of one that may be placed.
    """

    __slots__ = (
        "_inputs",
        "args",
        "awaited",
        "hashed",
        "index",
        "inner",
        "key",
        "kwargs",
        "run",
        "scope",
        "settled",
        "step",
        "why_not_kept",
    )

    def __init__(
        self,
        step: Step[Any],
        frame: Frame,
        args: Tuple[Any, ...],
        kwargs: Dict[str, Any],
        index: Optional[int] = None,
        wait_for: Any = None,
    ) -> None:
        self.step = step
        self.run = frame.run
        self.scope = frame.key
        self.inner = frame.inner
        self.args = args
        self.kwargs = kwargs
        self.index = index
        self.settled = False
        self._inputs = inputs = step.inputs(args, kwargs)
        self.awaited = find_futures((*args, *kwargs.values(), wait_for))
        self.hashed: Optional[Hashed] = {} if step.options.places else None
        self.key, self.why_not_kept = self.run.ledger.key_of(self.scope, step.identity, inputs, self.hashed)
        if step.passing:
            self.why_not_kept = PASSING

    def needs(self) -> List[str]:
        """The keys of the calls whose results this one takes or waits for."""
        keys = dict.fromkeys([future.key for future in self.awaited[:NEEDS_MAX]]) if self.awaited else {}
        for value in self._inputs:
            if type(value) not in SCALARS:
                producer = self.run.ledger.identify(value)
                if producer is not None:
                    keys[producer] = None
        return list(keys)[:NEEDS_MAX]

    def resolved(self) -> None:
        """Wait for what the call waits for, and put the results in the place of the futures."""
        if self.awaited:
            for future in self.awaited:
                future.result()
            self.args = resolve(self.args)
            self.kwargs = resolve(self.kwargs)


# ---------------------------------------------------------------- the ways to call


def call(
    step: Step[Any], frame: Frame, args: Tuple[Any, ...], kwargs: Dict[str, Any], wait_for: Any = None
) -> Any:
    """Call ``step`` and wait for it; an ``async def`` gives an awaitable, whose key is settled already."""
    frame.run.check()
    made = Call(step, frame, args, kwargs, None, wait_for)
    if step.is_coroutine:
        from . import aio  # noqa: PLC0415 - asyncio is for those who use it

        return aio.called(made)
    replayed = replay(made)
    if replayed is not None:
        return replayed[0]
    made.resolved()
    if placed_elsewhere(made):
        return submit_placed(made, Future(made.key, step.name), awaited=True).result()
    return drive.run(performed(made))


def submit(
    step: Step[Any],
    frame: Frame,
    args: Tuple[Any, ...],
    kwargs: Dict[str, Any],
    index: Optional[int] = None,
    wait_for: Any = None,
) -> Future[Any]:
    """Call ``step`` on a thread of the run's pool, on the running loop, or elsewhere; returns at once."""
    frame.run.check()
    return submit_call(Call(step, frame, args, kwargs, index, wait_for))


def submit_call(made: Call) -> Future[Any]:
    """The same of a call that was made."""
    step = made.step
    future: Future[Any] = Future(made.key, step.name, made.index)
    if _settle_from_kept(made, future):
        return future
    elsewhere = placed_elsewhere(made)
    if step.is_async and not elsewhere and _in_a_loop():
        from . import aio  # noqa: PLC0415 - asyncio is for those who use it

        return aio.submitted(made, future)
    return submit_made(made, future, elsewhere)


def submit_made(made: Call, future: Future[Any], elsewhere: bool = False) -> Future[Any]:
    """Run the call on a thread of the pool, or elsewhere, once all it waits for has ended."""
    context = contextvars.copy_context()

    def go_on() -> None:
        try:
            if elsewhere:
                made.resolved()
                submit_placed(made, future)
            else:
                made.run.pool.submit(lambda: context.run(_run_into, made, future), future, made.step.waits)
        except BaseException as error:  # noqa: BLE001 - whatever it is belongs to the future
            future.settle(error=error)

    waiting_for = [f for f in made.awaited if not f.done()] if made.awaited else None
    if waiting_for:
        made.run.pool.track(future)
        when_all_done(waiting_for, go_on)
    else:
        go_on()
    return future


def _in_a_loop() -> bool:
    """Whether this thread runs an event loop, which exists only if somebody has loaded asyncio."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


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
        if made.step.is_async:
            from . import aio  # noqa: PLC0415 - asyncio is for those who use it

            value = aio.run_on_new_loop(performed(made, future), made.run)
        else:
            value = drive.run(performed(made, future))
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
        value = encoding.decode(body, run.recorder.value_path)
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
    raise NotSupported(
        f"{made.step.name} asks for {options.asked()}, which a script cannot reach; start the flow on a "
        f"server with `farhand runs start {made.run.flow}`, or use device_policy='prefer'"
    )


def submit_placed(made: Call, future: Future[Any], awaited: bool = False) -> Future[Any]:
    """Ask for the call to be run elsewhere; the future settles when its outcome arrives.

    ``awaited``: this thread waits for that at once.
    """
    place = made.run.place
    if place is None:
        raise NotSupported("there is no server to place this call")
    place(made, future, awaited)
    return future
