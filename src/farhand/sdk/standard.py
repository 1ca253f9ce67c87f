"""The standard library as it is, whatever of its names a project has taken for modules of its own.

A project may have an ``email.py`` or a ``calendar.py``. What the standard library's own modules import under
such a name has to be the standard library's, and what the project imports has to be the project's again.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from types import ModuleType
from typing import Dict, Generator

_HOME = os.path.dirname(os.path.abspath(os.__file__))
_FOREIGN = os.path.join(_HOME, "site-packages")


@contextmanager
def standard_library() -> Generator[None, None, None]:
    """Meanwhile imports of its names find the standard library."""
    before, hidden = list(sys.path), _in_its_place()
    known = set(sys.modules)
    for name in hidden:
        del sys.modules[name]
    sys.path[:] = sorted(before, key=lambda entry: not _is_standard(entry))
    try:
        yield
    finally:
        sys.path[:] = before
        _put_back(hidden, known)


def _in_its_place() -> Dict[str, ModuleType]:
    """Loaded modules, with all below them, that have a name of the standard library and are not of it."""
    found: Dict[str, ModuleType] = {}
    for name, module in list(sys.modules.items()):
        top = sys.modules.get(name.partition(".")[0])
        origin = getattr(top, "__file__", None)
        if origin and not _is_standard(origin) and _has(name.partition(".")[0]):
            found[name] = module
    return found


def _has(name: str) -> bool:
    """Whether the standard library has a module of this name in a file."""
    return any(os.path.exists(os.path.join(_HOME, form)) for form in (f"{name}.py", name))


def _is_standard(path: str) -> bool:
    return (path + os.sep).startswith(_HOME + os.sep) and not path.startswith(_FOREIGN)


def _put_back(hidden: Dict[str, ModuleType], known: set[str]) -> None:
    """The project's modules under their names again, without what the standard library loaded below them."""
    tops = {name.partition(".")[0] for name in hidden}
    for name in [name for name in sys.modules if name not in known or name in hidden]:
        if name.partition(".")[0] in tops:
            del sys.modules[name]
    sys.modules.update(hidden)
