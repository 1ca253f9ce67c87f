"""What an agent itself has to say of an attempt, appended to a file of its own beside the engine's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, List, Optional, Tuple, Union

from .inmemory import copied_to_memory
from .protocol import dumps

_READ_BYTES = 64 * 1024


class SpoolWriter:
    """Appends the agent's own events. A line is in the file when the call returns."""

    def __init__(self, path: Union[str, Path]) -> None:
        self.path = path
        self.has_written = False
        self._fd: Optional[int] = None

    def write(self, events: List[Tuple[str, Any]]) -> int:
        """Append events of (kind, body) in one write; the file's size after it. Raises OSError."""
        if self._fd is None:
            self.has_written = True
            self._fd = opened(self.path, os.O_RDWR | os.O_APPEND)
            _cut_torn_line(self._fd)
        text = "".join(dumps([kind, body]) + "\n" for kind, body in events).encode()
        before = os.fstat(self._fd).st_size
        try:
            written = os.write(self._fd, text)
            if written != len(text):
                raise OSError(f"{self.path}: only {written} of {len(text)} bytes could be written")
        except OSError:
            os.ftruncate(self._fd, before)
            raise
        return before + written

    def go_on_in_memory(self) -> Optional[int]:
        """Write to a copy in memory from now on; it, open once more for its reader. None if there is none."""
        fd = copied_to_memory(str(self.path))
        if fd is None:
            return None
        _cut_torn_line(fd)
        self.close()
        self._fd = fd
        return os.dup(fd)

    def close(self) -> None:
        """Let go of the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def opened(path: Union[str, Path], flags: int) -> int:
    """The file, made where it is missing; and so its directory, which whoever clears temporary files away
    takes for left behind once it has been empty for days."""
    flags |= os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        return os.open(path, flags, 0o600)


def _cut_torn_line(fd: int) -> None:
    end = os.fstat(fd).st_size
    while end > 0:
        start = max(0, end - _READ_BYTES)
        at = os.pread(fd, end - start, start).rfind(b"\n")
        if at >= 0:
            os.ftruncate(fd, start + at + 1)
            return
        end = start
    os.ftruncate(fd, 0)
