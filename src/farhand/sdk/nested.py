"""Flows called inside of runs: what the record says of one, which has a run of its own there.

Such a flow goes on in its caller's engine, under the caller's job, and its outcome is kept and replayed like
that of any call. Its run begins and ends with the events of its call. Imported by whoever calls one.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Dict, Optional

from . import encoding, script, telling
from .context import Inner
from .ids import new_id

if TYPE_CHECKING:
    from .calls import Call


def inner_of(made: Call) -> Inner:
    """The flow of a call, with the id of its run: one that an earlier attempt has left open, or a new one."""
    return Inner(made.key, made.step.name, made.run.called.get(made.key) or new_id())


def begun(made: Call, inner: Inner) -> Dict[str, Any]:
    """What the event of its beginning says of it."""
    said = made.step.called(made.args, made.kwargs)
    return {"id": inner.id, **{name: value for name, value in said.items() if value is not None}}


def ended(error: BaseException, state: str) -> Dict[str, Any]:
    """What the event of its end says, beside what that of any call does."""
    reason = "cancelled" if state == "cancelled" else telling.reason_of(error)
    return {"reason": reason, "message": encoding.summary_of(error)}


def call_hooks(
    made: Call, inner: Inner, began: float, value: Any = None, error: Optional[BaseException] = None
) -> None:
    """Call, in this process, what the flow has for its end."""
    state = telling.state_of(error)
    summary = {
        "id": inner.id,
        "attempt": made.run.attempt,
        "params": made.step.called(made.args, made.kwargs)["params"],
        "created_at": began,
        "started_at": began,
        "ended_at": time.time(),
        **(telling.result_of(value) if error is None else telling.failure_of(error, state)),
    }
    telling.call_hooks(made.step, state, {**script.whose(made.step), **summary})
