"""Hooks: functions of a flow that are called with a summary of a run when it has ended.

On a server a hook is a job of its own, queued in the transaction that records the end; a script calls it
in its own process. Either way the run has its end already, and nothing a hook does changes it. Those of a
task are called where its flow is, once a call of it has its outcome.
"""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, List, Sequence, Union

from farhand.errors import NotFound, Usage

Summary = Dict[str, Any]
"""``id``, ``flow``, ``state``, ``reason``, ``message``, ``params``, ``result``, ``error``, and moments."""

Hook = Callable[[Summary], Any]
HOOKED = ("completed", "failed", "cancelled", "crashed")
"""The states that may have hooks."""

HookOrHooks = Union[Hook, Sequence[Hook], None]


class Hooks:
    """The hooks of a flow, by the state that calls them."""

    __slots__ = ("_any", "_of")

    def __init__(self, **given: HookOrHooks) -> None:
        self._of: Dict[str, List[Hook]] = {state: _listed(state, hooks) for state, hooks in given.items()}
        self._any = any(self._of.values())

    def of(self, state: str) -> List[Hook]:
        """The hooks that a run's end in ``state`` calls."""
        return self._of.get(state, [])

    def __bool__(self) -> bool:
        return self._any

    def described(self) -> List[Summary]:
        """As the server keeps them."""
        return [
            {"state": state, "index": index, "name": name_of(hook)}
            for state, hooks in self._of.items()
            for index, hook in enumerate(hooks)
        ]

    @property
    def secrets(self) -> List[str]:
        """The names of secrets that ready-made hooks read."""
        return [
            name for hooks in self._of.values() for hook in hooks for name in getattr(hook, "secrets", ())
        ]

    def find(self, key: str) -> Hook:
        """The hook of a hook job's key. Raises `NotFound` when the code has it no more."""
        _, state, index = key.split(":")
        hooks = self.of(state)
        if int(index) >= len(hooks):
            raise NotFound(f"the flow has no hook {key}")
        return hooks[int(index)]


def name_of(hook: Hook) -> str:
    """What a hook is called in lists: its function's name, or its own words."""
    return str(getattr(hook, "__name__", None) or hook)


def _listed(state: str, given: HookOrHooks) -> List[Hook]:
    hooks: List[Any] = list(given) if isinstance(given, (list, tuple)) else [] if given is None else [given]
    for hook in hooks:
        if not callable(hook):
            raise Usage(
                f"on_{state} takes a function of one argument (a summary of the run), or a list of them"
            )
        if getattr(getattr(hook, "__code__", None), "co_flags", 0) & inspect.CO_COROUTINE:
            raise Usage(f"on_{state} takes plain functions; {name_of(hook)} is async def")
    return hooks
