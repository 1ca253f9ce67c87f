"""Targets: what lies outside of the store and is there or not, and files that appear whole or not at all.

A job may write twice outside of the store: when its machine is lost between a write and the record of it, it
runs again. A target keeps that harmless, since it is made in one step and can be asked whether it was made.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Optional, Tuple, Union

from .context import current
from .wholefiles import Octets, Place, Text


class Target:
    """Something outside of the store that is there or not: a file, a table, an object in a bucket.

    A subclass says which with `exists`, and makes it in one step.
    """

    def exists(self) -> bool:
        """Whether it has been made, and made whole."""
        raise NotImplementedError(f"{type(self).__qualname__} does not say whether it exists")


class LocalTarget(Target):
    """A file of this machine that is there whole or not at all. ``path`` is where.

    It can be a parameter (its path as text), an argument and a result, and is taken wherever a path is.
    """

    def __init__(self, path: Union[str, os.PathLike[str]]) -> None:
        name = os.fspath(path)
        if not isinstance(name, str) or not name or "\0" in name:
            raise ValueError("a LocalTarget takes the path of a file, as text or as a pathlib.Path")
        self.path = name

    def exists(self) -> bool:
        """Whether something is there."""
        _used(self)
        return os.path.exists(self.path)

    def open(self, mode: str = "r", encoding: Optional[str] = None, newline: Optional[str] = None) -> Any:
        """The file, to read (``r``, ``rb``) or to write anew (``w``, ``wb``); text is UTF-8 if not told.

        What is written goes to a file beside it, which takes its place when it is closed, after it was
        synced. When a ``with`` block is left by an exception, or the file is never closed, or the process
        is killed, the target is what it was. Directories that lead there are made.

        Raises ValueError for another mode, and OSError as ``open`` does.
        """
        if mode not in ("r", "rb", "w", "wb"):
            raise ValueError(f"a target opens with r, rb, w or wb, not {mode!r}: it is written whole")
        binary = mode.endswith("b")
        if binary and (encoding is not None or newline is not None):
            raise ValueError("a binary mode takes no encoding and no newline")
        _used(self)
        text = None if binary else (encoding or "utf-8")
        if mode.startswith("r"):
            return open(self.path, mode, encoding=text, newline=newline)
        place = Place(os.path.realpath(self.path))
        if binary:
            return Octets(place)
        return Text(place, text, newline)

    def remove(self) -> None:
        """Take it away; one that is not there is no error."""
        _used(self)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    def __fspath__(self) -> str:
        _used(self)
        return self.path

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), (self.path,)

    def __repr__(self) -> str:
        return f"{type(self).__qualname__}({self.path!r})"


def _used(target: LocalTarget) -> None:
    """Where a job runs that shares no disk with the server, its path is told once."""
    frame = current()
    if frame is not None and frame.run.local_path is not None:
        frame.run.local_path(target)
