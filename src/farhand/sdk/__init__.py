"""What user code imports, and what runs it.

A *step* is a decorated function. In a script, `script` runs a flow and records it in a `journal`; on a
server or worker, the `engine` process gets jobs over its `channel` and the `runner` executes them, with a
`spool` for a record. Both make `calls` through the same code, under the keys of `checkpoints`.
A call is a procedure that `drive` runs and `aio` awaits, so ``def`` and ``async def`` share all of it;
`processes` has the children of process tasks. What a parameter accepts is a kind (`kinds`), made from its
annotation (`annotations`) or from a JSON Schema.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .artifacts import load_artifact, save_artifact
from .context import current_run
from .flows import Flow, flow
from .futures import Future, Futures, unmapped
from .metrics import emit, progress
from .references import ArtifactRef
from .retries import exponential
from .schedules import Schedule, cron, every
from .tasks import Task, task

if TYPE_CHECKING:
    from .loggers import get_logger
    from .notifications import notify
    from .secrets import secret, variable
    from .services import Service, service_url
    from .targets import LocalTarget, Target

__all__ = [
    "ArtifactRef",
    "Flow",
    "Future",
    "Futures",
    "LocalTarget",
    "Schedule",
    "Service",
    "Target",
    "Task",
    "cron",
    "current_run",
    "emit",
    "every",
    "exponential",
    "flow",
    "get_logger",
    "load_artifact",
    "notify",
    "progress",
    "save_artifact",
    "secret",
    "service_url",
    "task",
    "unmapped",
    "variable",
]

_ON_USE = {
    "LocalTarget": "targets",
    "Service": "services",
    "Target": "targets",
    "get_logger": "loggers",
    "notify": "notifications",
    "secret": "secrets",
    "service_url": "services",
    "variable": "secrets",
}
"""What only some scripts use, and what it would load for the others."""


def __getattr__(name: str) -> Any:
    """Load what not every script uses."""
    if name in _ON_USE:
        return getattr(import_module(f"{__name__}.{_ON_USE[name]}"), name)
    raise AttributeError(f"module 'farhand.sdk' has no attribute {name!r}")
