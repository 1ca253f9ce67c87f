"""farhand: flows and tasks in plain Python, run here or on any machine that dials in.

What `farhand.sdk` exports is exported here; the list of it is there.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

RUNS_HERE = sys.platform.startswith(("linux", "darwin"))
NOT_HERE = "farhand runs on Linux and macOS; on Windows, run it in WSL"

if TYPE_CHECKING:
    from .sdk import *  # noqa: F403


_PLACE = os.path.dirname(__file__)


def __getattr__(name: str) -> Any:
    """Load the sdk on first use, so that ``import farhand`` costs nothing to whoever needs only a part."""
    if name == "__all__" or not (name.startswith("__") or _is_a_part(name)):
        if not RUNS_HERE:
            raise ImportError(NOT_HERE)
        from . import sdk

        if name == "__all__":
            return sdk.__all__
        if name in sdk.__all__:
            return getattr(sdk, name)
    raise AttributeError(f"module 'farhand' has no attribute {name!r}")


def _is_a_part(name: str) -> bool:
    """Whether a module or package of ours is asked for, which the import system then finds by itself."""
    return any(os.path.exists(os.path.join(_PLACE, name + ending)) for ending in ("", ".py", ".pyc"))
