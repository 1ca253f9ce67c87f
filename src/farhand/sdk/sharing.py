"""Paths that mean a file on one machine only, noticed where they come to a worker or go from it.

A path in a job's arguments or in its value names a file on whatever machine reads it. That is well where all
machines see the same storage under it, which a worker says with ``--shared-path``, and a trap elsewhere.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePath
from typing import Any, Callable, Iterator, List, Sequence

from . import events
from .context import Frame
from .targets import LocalTarget

REMEDY = "save an artifact instead, or tell its worker that the server shares it (--shared-path)"
LOOKED_AT_MAX = 1000
"""So many values are looked at for each job: a list of a million numbers holds nobody up."""

_ATOMS = frozenset({type(None), bool, int, float, str, bytes})


def paths_in(value: Any) -> Iterator[PurePath]:
    """The paths and local targets in a value and in the plain containers that it is made of."""
    waiting, looked_at = [value], 0
    while waiting and looked_at < LOOKED_AT_MAX:
        found, looked_at = waiting.pop(), looked_at + 1
        if isinstance(found, PurePath):
            yield found
        elif isinstance(found, LocalTarget):
            yield PurePath(found.path)
        elif isinstance(found, dict):
            waiting += list(found.values())[:LOOKED_AT_MAX]
        elif isinstance(found, (list, tuple, set, frozenset)):
            waiting += list(found)[:LOOKED_AT_MAX]


def unshared(value: Any, shared: Sequence[str], cwd: Callable[[], Path]) -> List[str]:
    """The paths in a value that lie outside every shared directory; relative ones are those of ``cwd``."""
    paths = list(paths_in(value))
    if not paths:
        return []
    places = [Path(place) for place in shared]
    found = {str(path): Path(os.path.normpath(cwd() / path)) for path in paths}
    return sorted(
        name
        for name, path in found.items()
        if not any(place == path or place in path.parents for place in places)
    )


class Sharing:
    """Reports each path once. ``shared`` are the directories that this machine shares with the server."""

    def __init__(self, frame: Frame, shared: Sequence[str]) -> None:
        self._frame = frame
        self._shared = shared
        self._told: List[str] = []

    def look(self, value: Any) -> None:
        """Tell of the paths in a value, by an event and in the log."""
        if type(value) in _ATOMS:
            return
        for path in unshared(value, self._shared, Path.cwd):
            if path in self._told:
                continue
            self._told.append(path)
            run, text = self._frame.run, f"{path} is a path of this machine alone; {REMEDY}"
            run.log(text, "warning", self._frame.key or None, self._frame.nested)
            run.recorder.write(events.line("local_path", {"at": events.now(), "path": path}))
