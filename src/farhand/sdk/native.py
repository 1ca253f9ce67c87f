"""What C code prints: it lies in a buffer of C's own, of which Python knows nothing.

Written to a pipe it would stay there until the buffer is full, and come out in the middle of a later job.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

_NAMES = ("stdout", "__stdoutp")
"""What C libraries call it."""


class NativeOutput:
    """C's standard output in this process."""

    def __init__(self) -> None:
        self._flush: Optional[Callable[[], Any]] = None

    def flush(self) -> None:
        """Write what is buffered."""
        if self._flush is None:
            self._flush = _flusher()
        self._flush()


def _flusher() -> Callable[[], Any]:
    import ctypes  # noqa: PLC0415 - a process that executes no job need not load it

    library = ctypes.CDLL(None)
    for name in _NAMES:
        try:
            stream = ctypes.c_void_p.in_dll(library, name)
        except ValueError:
            continue
        flush = library.fflush
        flush.argtypes = [ctypes.c_void_p]
        return lambda: flush(stream)
    return lambda: None


native_output = NativeOutput()
