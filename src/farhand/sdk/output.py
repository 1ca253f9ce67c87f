"""``sys.stdout`` and ``sys.stderr`` while a run goes on: every line becomes a log event of its call.

In an engine our streams are the only ones; in a script they stand before the real ones (a tee), so what
is printed still reaches the terminal. ``print(file=…)`` to anything else never comes here. A forked child
writes straight to the descriptor and records nothing.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
import threading
from threading import get_ident
from typing import Any, Callable, Dict, Iterable, List, Optional, Set, Tuple

from . import events
from .context import Frame, Run, current
from .forks import on_fork

LINE_CHARS_MAX = 32 * 1024
"""A longer line is cut here; the rest of it is dropped and the cut is marked."""

CUT = " … (line cut)"

Write = Callable[[str], Any]


class LineStream(io.TextIOBase):
    """A text stream whose lines are recorded for the run that writes them.

    Pieces of a line are gathered by thread. A line that is too long is cut. A line that has a carriage
    return in it, as progress bars make, keeps what was last seen of it.
    """

    def __init__(self, name: str, fd: int, original: Any = None) -> None:
        self._stream = name
        self._level = "error" if name == "stderr" else "info"
        self._fd = fd
        self._original = original
        self._pieces: Dict[int, Tuple[Frame, str]] = {}
        self._skipping: Set[int] = set()
        self._forked = False
        self.buffer = ByteStream(self)
        on_fork(self._after_fork)

    def _after_fork(self) -> None:
        self._forked = True
        self._pieces = {}

    # ------------------------------------------------------------ what writers need

    def write(self, text: str, /) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if self._forked:
            self._write_raw(text)
            return len(text)
        if self._original is not None:
            self._original.write(text)
        self.record(text)
        return len(text)

    def writelines(self, lines: Iterable[str], /) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for text in lines:
            self.write(text)

    def flush(self) -> None:
        """Pass a flush on; a line that is not complete waits for its end."""
        if self._original is not None:
            self._original.flush()

    def record(self, text: str) -> None:
        """Log the lines of ``text``; what follows the last newline waits."""
        thread = get_ident()
        known = self._pieces.get(thread)
        if known is not None and "\n" not in text:  # print() writes its arguments, and what is between them
            more = known[1] + text
            if len(more) <= LINE_CHARS_MAX:
                self._pieces[thread] = known[0], more
                return
        frame = current()
        if frame is None or not text:
            return
        if not self._skipping:
            if text == "\n":  # and then its end
                known = self._pieces.pop(thread, None)
                self._log(frame, "" if known is None else known[1])
                return
            if known is None and "\n" not in text and len(text) <= LINE_CHARS_MAX:
                self._pieces[thread] = frame, text
                return
        self._record_pieces(frame, thread, text)

    def _record_pieces(self, frame: Frame, thread: int, text: str) -> None:
        if self._skipping and thread in self._skipping:
            _, ended, text = text.partition("\n")
            if not ended:
                return
            self._skipping.discard(thread)
        known = self._pieces.pop(thread, None)
        if known is not None:
            text = known[1] + text
        *lines, rest = text.split("\n")
        for content in lines:
            self._log(frame, content)
        if len(rest) > LINE_CHARS_MAX:
            rest = rest.rpartition("\r")[2]
        if len(rest) > LINE_CHARS_MAX:
            self._log(frame, rest)
            self._skipping.add(thread)
        elif rest:
            self._pieces[thread] = (frame, rest)

    @property
    def unfinished(self) -> bool:
        """Whether some thread has begun a line, or is beyond what is kept of one."""
        return bool(self._pieces or self._skipping)

    def finish_line(self) -> None:
        """Log what this thread has begun as if it had ended its line."""
        self._skipping.discard(get_ident())
        if self._pieces:
            known = self._pieces.pop(get_ident(), None)
            if known is not None:
                self._log(*known)

    def finish_all(self) -> None:
        """The same for every thread."""
        self._skipping.clear()
        while self._pieces:
            _, known = self._pieces.popitem()
            self._log(*known)

    def _log(self, frame: Frame, text: str) -> None:
        if "\r" in text:
            text = text.rstrip("\r").rpartition("\r")[2]
        run, inner = frame.run, frame.inner
        if len(text) > LINE_CHARS_MAX:
            text = cut(text, run)
        if run.listened_to:
            frame.reported()
        nested = None if inner is None else inner.key
        run.recorder.write(events.log(events.now(), text, self._stream, self._level, frame.key, nested))

    def _write_raw(self, text: str) -> None:
        content = text.encode("utf-8", "backslashreplace")
        while content:
            content = content[os.write(self._fd, content) :]

    # ------------------------------------------------------------ what else a stream has

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "utf-8"

    @property
    def errors(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "backslashreplace"

    @property
    def name(self) -> str:
        return f"<{self._stream}>"

    @property
    def mode(self) -> str:
        return "w"

    @property
    def line_buffering(self) -> bool:
        return True

    def fileno(self) -> int:
        """The descriptor for subprocesses; what they write is logged as well, by the agent."""
        return self._fd if self._original is None else self._original.fileno()

    def isatty(self) -> bool:
        """False in an engine; a script's terminal stays one."""
        return False if self._original is None else bool(self._original.isatty())

    def writable(self) -> bool:
        return True

    def reconfigure(self, **_: Any) -> None:
        """Accepted, as scripts call it at their start; the log is UTF-8 in any case."""

    def close(self) -> None:
        """Refused silently: the next run writes here too."""

    @property
    def original(self) -> Any:
        """The stream this one stands before."""
        return self._original


def cut(text: str, run: Run) -> str:
    """The beginning of a line that is too long. A secret that the cut would go through is hidden first."""
    if run.masker is not None:
        text = run.masker(text[: len(text) - run.masker.unfinished(text)])
    return text[:LINE_CHARS_MAX] + CUT


class ByteStream(io.RawIOBase):
    """``sys.stdout.buffer``: bytes that become text of the same log, whatever they are."""

    def __init__(self, text: LineStream) -> None:
        self._text = text
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def write(self, content: Any, /) -> int:
        taken = bytes(content)
        original = self._text.original
        text = self._decoder.decode(taken)
        if original is None:
            self._text.write(text)
        else:
            original.flush()
            original.buffer.write(taken)
            self._text.record(text)
        return len(taken)

    def flush(self) -> None:
        self._text.flush()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._text.fileno()

    def close(self) -> None:
        """Refused silently, like the stream's own."""


class Streams:
    """Both streams, put in place and taken away again. Runs that overlap share them."""

    def __init__(self) -> None:
        self._depth = 0
        self._lock = threading.Lock()
        self._streams: List[LineStream] = []
        self._before: Tuple[Any, Any] = (None, None)

    def install(self, tee: bool) -> None:
        """Stand before (``tee``) or in the place of the process's own streams."""
        with self._lock:
            self._depth += 1
            if self._depth > 1:
                return
            self._before = (sys.stdout, sys.stderr)
            out, err = (sys.stdout, sys.stderr) if tee else (None, None)
            if not tee:
                _unbuffer(sys.__stdout__, sys.__stderr__)
            self._streams = [LineStream("stdout", 1, out), LineStream("stderr", 2, err)]
            self.put_in_place()

    def put_in_place(self) -> None:
        """Make ours the process's streams (again)."""
        sys.stdout, sys.stderr = self._streams

    def uninstall(self) -> None:
        """Give back the streams that were there, unless user code has put in others since."""
        with self._lock:
            self._depth -= 1
            if self._depth:
                return
            self.finish_all()
            if sys.stdout is self._streams[0]:
                sys.stdout = self._before[0]
            if sys.stderr is self._streams[1]:
                sys.stderr = self._before[1]
            self._streams = []

    def finish_line(self) -> None:
        """Log the lines that this thread has begun."""
        for stream in self._streams:
            if stream.unfinished:
                stream.finish_line()

    def finish_all(self) -> None:
        """Log the lines that any thread has begun."""
        for stream in self._streams:
            stream.finish_all()


def _unbuffer(*streams: Optional[Any]) -> None:
    for stream in streams:
        if stream is not None:
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", write_through=True)


streams = Streams()
"""A process has one pair of streams."""

flush_partial_line = streams.finish_line
