"""What must happen in a forked child: it records nothing, and our descriptors are not its own."""

from __future__ import annotations

import os
import weakref
from typing import Any, List

_listening: List[weakref.WeakMethod[Any]] = []


def on_fork(method: Any) -> None:
    """Call a bound method in every forked child, for as long as its object lives."""
    _listening[:] = [known for known in _listening if known() is not None]
    _listening.append(weakref.WeakMethod(method))


def _after_in_child() -> None:
    for known in list(_listening):
        method = known()
        if method is not None:
            method()


os.register_at_fork(after_in_child=_after_in_child)
