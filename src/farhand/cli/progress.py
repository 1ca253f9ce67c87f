"""How a run of `farhand run` comes along: drawn below its output on a terminal, plain lines elsewhere.

A run's record is the source: each of its lines is taken in by a `Tally`, which knows no terminal. On a
terminal a thread draws the tally several times a second and takes the drawing away before anything else
is written; everywhere else a line is printed now and then, by whoever reports.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, TextIO

Watch = Callable[[str], None]

FIRST_S = 0.4
"""A run that is over before this is not drawn at all."""
DRAW_S = 0.125
TELL_S = 5.0
"""Plain lines come at most this often."""
GROUPS_MAX = 8


@dataclass(slots=True)
class Calls:
    """The calls of one task."""

    running: int = 0
    completed: int = 0
    failed: int = 0

    def __str__(self) -> str:
        told = [f"{self.completed} done"]
        told += [f"{self.running} running"] * bool(self.running)
        told += [f"{self.failed} failed"] * bool(self.failed)
        return ", ".join(told)


@dataclass(slots=True)
class Mark:
    """What a flow or a call said last with ``progress``."""

    of: str
    done: float
    total: float | None
    message: str

    def __str__(self) -> str:
        far = f"{self.done:g}" if self.total is None else f"{self.done:g} of {self.total:g}"
        return f"{far} {self.message}".rstrip()


@dataclass
class Tally:
    """What the lines of a record come to."""

    flow: str
    calls: dict[str, Calls] = field(default_factory=dict[str, Calls])
    marks: dict[str, Mark] = field(default_factory=dict[str, Mark])
    _names: dict[str, str] = field(default_factory=dict[str, str])

    def take(self, line: str) -> None:
        """Count a line of the record; kinds that say nothing of progress are passed over."""
        kind = line[2 : line.find('"', 2)]
        if kind in _TAKEN:
            _TAKEN[kind](self, json.loads(line)[1])

    def began(self, body: dict[str, Any]) -> None:
        """A call has begun."""
        self._names[body["key"]] = body["name"]
        self.calls.setdefault(body["name"], Calls()).running += 1

    def ended(self, body: dict[str, Any]) -> None:
        """A call has ended."""
        of = self.calls.setdefault(body["name"], Calls())
        of.running -= self._names.pop(body["key"], None) is not None
        self.marks.pop(body["key"], None)
        if body["state"] == "completed":
            of.completed += 1
        else:
            of.failed += 1

    def marked(self, body: dict[str, Any]) -> None:
        """The flow, or a call of it, has said how far it is."""
        key = body.get("task", "")
        name = self._names.get(key, self.flow)
        self.marks[key] = Mark(name, body["done"], body.get("total"), body.get("message", ""))

    def sentence(self) -> str:
        """All of it in one line."""
        marks = [f"{mark.of} {mark}" for mark in self.marks.values()]
        return "; ".join([f"{name} {calls}" for name, calls in self.calls.items()] + marks[-GROUPS_MAX:])


_TAKEN: dict[str, Callable[[Tally, dict[str, Any]], None]] = {
    "task": Tally.began,
    "checkpoint": Tally.ended,
    "progress": Tally.marked,
}


@contextlib.contextmanager
def shown(flow: str, wanted: bool = True) -> Generator[Watch | None]:
    """Show meanwhile how the run comes along whose record's lines are given to what this yields."""
    if not wanted:
        yield None
    elif sys.stderr.isatty():
        with _Board(flow).drawn() as watch:
            yield watch
    else:
        yield _Teller(flow).watch


class _Teller:
    """Plain lines on stderr, one now and then."""

    def __init__(self, flow: str) -> None:
        self._tally = Tally(flow)
        self._lock = threading.Lock()
        self._next = time.monotonic() + TELL_S

    def watch(self, line: str) -> None:
        """Take a line, and say how far the run is when that was not said for a while."""
        with self._lock:
            self._tally.take(line)
            if time.monotonic() < self._next:
                return
            self._next = time.monotonic() + TELL_S
            said = self._tally.sentence()
        if said:
            stream: Any = getattr(sys.stderr, "original", None) or sys.stderr  # it is no output of the run
            stream.write(f"{self._tally.flow}: {said}\n")


class _Board:
    """The drawing on a terminal, and the thread that draws it."""

    def __init__(self, flow: str) -> None:
        self._tally = Tally(flow)
        self._lines: deque[str] = deque()
        self._began = time.monotonic()
        self._over = threading.Event()
        self._lock = threading.RLock()
        self._terminal = sys.stderr
        self._height = 0

    @contextlib.contextmanager
    def drawn(self) -> Generator[Watch]:
        """Draw until the end of the block; then nothing of it is left on the terminal."""
        before = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = (_Above(self, stream) if stream.isatty() else stream for stream in before)
        thread = threading.Thread(target=self._draw_on, name="farhand-progress", daemon=True)
        thread.start()
        try:
            yield self._lines.append
        finally:
            self._over.set()
            thread.join()
            sys.stdout, sys.stderr = before

    def write_above(self, stream: TextIO, text: str) -> int:
        """Write ``text`` where the drawing was; it is drawn again when the line is complete."""
        with self._lock:
            self._erase()
            self._height = 0 if text.endswith("\n") else -1
            written = stream.write(text)
            stream.flush()
            return written

    def _draw_on(self) -> None:
        wait_s = FIRST_S
        while not self._over.wait(wait_s):
            wait_s = DRAW_S
            while self._lines:
                self._tally.take(self._lines.popleft())
            with self._lock:
                if self._height >= 0:  # below a line that has not ended, such as a prompt, nothing is drawn
                    picture = _picture(self._tally, time.monotonic() - self._began, self._terminal)
                    self._erase()
                    self._terminal.write(picture)
                    self._terminal.flush()
                    self._height = picture.count("\n")
        with self._lock:
            self._erase()
            self._terminal.flush()

    def _erase(self) -> None:
        if self._height > 0:
            self._terminal.write(f"\r\x1b[{self._height}A\x1b[J")
            self._height = 0


class _Above:
    """A stream of the terminal while something is drawn below it; all but writing is the stream's own."""

    def __init__(self, board: _Board, stream: Any) -> None:
        self._board = board
        self._stream = stream

    def write(self, text: str) -> int:
        """Write above the drawing."""
        return self._board.write_above(self._stream, text) if text else 0

    def writelines(self, lines: list[str]) -> None:
        """Write above the drawing."""
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _picture(tally: Tally, seconds: float, terminal: TextIO) -> str:
    """The drawing: a line for the flow, one a task, and a bar for each ``progress`` that goes on."""
    from rich.console import Console
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    console = Console(file=terminal, highlight=False)
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, max_width=30, overflow="ellipsis")
    table.add_column(no_wrap=True, overflow="ellipsis")
    table.add_row(Text(tally.flow, style="bold"), Text(f"{seconds:.0f} s", style="dim"))
    busy = sorted(tally.calls.items(), key=lambda item: item[1].running == 0)
    for name, calls in busy[:GROUPS_MAX]:
        table.add_row(Text(f"  {name}"), Text(str(calls), style="red" if calls.failed else ""))
    if len(busy) > GROUPS_MAX:
        table.add_row(Text(f"  and {len(busy) - GROUPS_MAX} other tasks", style="dim"), "")
    for mark in list(tally.marks.values())[-GROUPS_MAX:]:
        bar = Table.grid(padding=(0, 1))
        if mark.total is not None:
            bar.add_row(ProgressBar(total=mark.total, completed=mark.done, width=24), Text(str(mark)))
        else:
            bar.add_row(Text(str(mark)))
        table.add_row(Text(f"  {mark.of}", style="blue"), bar)
    with console.capture() as captured:
        console.print(table)
    return captured.get()
