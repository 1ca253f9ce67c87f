"""A file that is read for what stands in it starts none of its flows.

A project's modules are imported by the server that lists its flows, on each machine that runs one, and by
the process of a task. A call of a flow at the top of such a module is meant for ``python FILE``; anywhere
else it would be one more run each time, so it is refused.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Callable, TypeVar

from farhand.errors import Usage

T = TypeVar("T")

_reading: ContextVar[str] = ContextVar("farhand_reading", default="")
"""What is read: the name of a module or a file; empty where code is run."""


def only_reading(name: str, read: Callable[..., T], *given: Any) -> T:
    """What ``read(*given)`` returns, which imports ``name``."""
    token = _reading.set(name)
    try:
        return read(*given)
    finally:
        _reading.reset(token)


def check_may_start(flow: str) -> None:
    """Raises `Usage` where a flow is called by a module that is only read."""
    name = _reading.get()
    if name:
        raise Usage(f'{name} calls {flow} as it is imported; put the call under `if __name__ == "__main__":`')
