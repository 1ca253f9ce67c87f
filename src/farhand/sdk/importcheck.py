"""Whether a module of a project can be imported here, and reaches no file that it is not known to reach."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Collection, Iterator, List, Set

from farhand.errors import NotIncluded

from .loading import import_project_module

_INSTALLED = frozenset({"site-packages", "dist-packages"})
_NAMED = 5


def check_import(module: str, root: Path, known: Collection[str], checkout: str = "") -> None:
    """Import a module of the project in ``root``; raises what importing it raises.

    ``known`` are the names of the files that it reaches, as its manifest has them (none: not looked at).
    Raises `NotIncluded` for a file of the project, or of the ``checkout`` it works in, not among them.
    """
    before = set(sys.modules)
    import_project_module(module, root)
    if not known:
        return
    places = [str(root), *([checkout] if checkout else [])]
    strays = sorted(name for place in places for name in project_files(place, before) if name not in known)
    if strays:
        raise not_included(strays)


def not_included(strays: List[str]) -> NotIncluded:
    """The error that names files which were imported and are not known."""
    more = f" and {len(strays) - _NAMED} more" if len(strays) > _NAMED else ""
    named = ", ".join(strays[:_NAMED]) + more
    return NotIncluded(
        f"imports {named} by a name that is only known when it runs; name it under include in farhand.toml",
        files=strays,
    )


def project_files(root: str, before: Set[str]) -> Iterator[str]:
    """The files below ``root`` that modules were loaded from since ``before``, without what is installed."""
    base = root.rstrip(os.sep) + os.sep
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if name in before or not isinstance(path, str) or not path.startswith(base):
            continue
        parts = path[len(base) :].split(os.sep)
        if not _INSTALLED.intersection(parts):
            yield "/".join(parts)
