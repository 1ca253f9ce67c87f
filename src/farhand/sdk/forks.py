"""What must happen in a forked child: it records nothing, and our descriptors are not its own."""

from __future__ import annotations

import os
import weakref
from typing import Any, Dict

_listening: Dict[int, weakref.WeakMethod[Any]] = {}


def on_fork(method: Any) -> Any:
    """Call a bound method in every forked child, for as long as its object lives, or until `forget`."""
    known = weakref.WeakMethod(method, forget)
    _listening[id(known)] = known
    return known


def forget(known: Any, listening: Dict[int, Any] = _listening) -> None:
    """What `on_fork` gave is not to be called any more.

    The dict is an argument because a weak reference may die after the names of this module did, at exit.
    """
    listening.pop(id(known), None)


def _after_in_child() -> None:
    for known in list(_listening.values()):
        method = known()
        if method is not None:
            method()


os.register_at_fork(after_in_child=_after_in_child)
