"""farhand: flows and tasks in plain Python, run here or on any machine that dials in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .sdk import (
        cron,
        current_run,
        emit,
        every,
        exponential,
        flow,
        get_logger,
        load_artifact,
        notify,
        progress,
        save_artifact,
        secret,
        task,
        unmapped,
        variable,
    )

__all__ = [
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
    "task",
    "unmapped",
    "variable",
]


def __getattr__(name: str) -> Any:
    """Load the sdk on first use, so that ``import farhand`` costs nothing to whoever needs only a part."""
    if name in __all__:
        from . import sdk

        return getattr(sdk, name)
    raise AttributeError(f"module 'farhand' has no attribute {name!r}")
