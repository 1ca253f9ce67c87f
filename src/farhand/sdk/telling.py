"""Calls hooks in this process: those of a script's flows, and those of tasks wherever they were called from.

Whatever a hook does, what it is told of has ended as it has.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional

from farhand.errors import InvalidParameters

from . import encoding, parameters
from .context import Frame, enter, leave
from .interrupts import UNRULY, is_interruption
from .journal import warn
from .steps import Step

if TYPE_CHECKING:
    from .calls import Call

Summary = Dict[str, Any]


def call_hooks(step: Step[Any], state: str, summary: Summary, say: Callable[[str], Any] = warn) -> None:
    """Call what the step has for this end; ``say`` is told of a hook that fails."""
    for hook in step.hooks_of(state):
        try:
            hook(dict(summary))
        except UNRULY as error:  # user code, after the end
            say(f"a hook of {step.name} failed: {encoding.summary_of(error)}")


def tell(
    made: Call,
    began: float,
    value: Any = None,
    error: Optional[BaseException] = None,
    state: Optional[str] = None,
) -> None:
    """Call the hooks of a task whose call has its outcome."""
    state = state or state_of(error)
    if not made.step.hooks_of(state):
        return
    summary = {
        "id": made.run.id if made.inner is None else made.inner.id,
        "flow": made.run.flow if made.inner is None else made.inner.flow,
        "task": made.step.name,
        "key": made.key,
        "index": made.index,
        "attempt": made.run.attempt,
        "params": parameters.shown(made.step.signature.bind(*made.args, **made.kwargs).arguments),
        "started_at": began,
        "ended_at": time.time(),
        **(result_of(value) if error is None else failure_of(error, state)),
    }
    run, nested = made.run, None if made.inner is None else made.inner.key
    call_hooks(made.step, state, summary, lambda text: run.log(text, "warning", made.key, nested))


def tell_aside(made: Call, began: float, settle: Callable[[], Any], **outcome: Any) -> None:
    """The same on a thread of its own, in the frame of the call; then ``settle`` its future."""

    def work() -> None:
        token = enter(Frame(made.run, made.key, made.step.name, None, made.inner))
        try:
            tell(made, began, **outcome)
        finally:
            leave(token)
            settle()

    threading.Thread(target=work, name="farhand-hooks", daemon=True).start()


def state_of(error: Optional[BaseException]) -> str:
    """How a call ended that raised this, or nothing."""
    return "completed" if error is None else "cancelled" if is_interruption(error) else "failed"


def result_of(value: Any) -> Dict[str, Any]:
    """What hooks are told of a flow that completed; a result that is no JSON is left out."""
    shown = value if encoding.json_text(value) is not None else None
    return {"state": "completed", "reason": "completed", "message": "", "result": shown, "error": None}


def failure_of(error: BaseException, state: str, reason: str = "") -> Dict[str, Any]:
    """What they are told of one that did not."""
    encoded = encoding.encode_error(error)
    return {
        "state": state,
        "reason": reason or (state if state == "cancelled" else reason_of(error)),
        "message": encoding.summary_of(error),
        "result": None,
        "error": {name: encoded.get(name, "") for name in ("type", "message", "traceback")},
    }


def reason_of(error: BaseException) -> str:
    """The machine-readable reason of a failure."""
    code = getattr(error, "code", None)
    if isinstance(error, InvalidParameters):
        return "parameters"
    return code if code in ("timeout", "silence", "not_serializable", "worker_lost") else "exception"
