"""Ctrl-C while a script runs a flow: it reaches the main thread whatever that does, and breaks no record.

CPython's handler in C only notes a signal. The main thread runs the Python one when it next executes Python
code, or when the signal breaks off its wait in the kernel. One that comes between its last look and the
beginning of that wait, or that another thread is handed, breaks nothing off: it would be seen when the wait
is over, which may be never. So the byte that CPython writes for each signal wakes a thread of ours, and that
one signals the main thread until it has looked.

A Ctrl-C does not strike where a record is written or a lock of ours is held, as interruptions do not (see
`interrupts`), but a moment later. The second one does at once.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any, Optional, Tuple

from .forks import on_fork
from .interrupts import SIGNAL, interrupter, is_protected

_NONE = -1
_BYTES = 64


class Keyboard:
    """Sees to SIGINT while flows run in the main thread. Whoever has a handler of their own keeps it."""

    def __init__(self) -> None:
        self.depth = 0
        self._presses = 0
        self._due = False
        self._handles = False
        self._ends: Optional[Tuple[int, int]] = None
        on_fork(self._forked)

    def open(self) -> None:
        """From here on a Ctrl-C is seen to. Called in the main thread; nests."""
        self.depth += 1
        if self.depth > 1:
            return
        self._presses, self._due = 0, False
        interrupter.open()
        interrupter.on_strike = self._strike
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._handles = True
            signal.signal(signal.SIGINT, self._pressed)
        self._listen()

    def close(self, depth: int) -> None:
        """The flow has ended that was begun at this depth. A Ctrl-C that came too late for it comes now."""
        opened, self.depth = self.depth, depth
        if depth or not opened:
            return
        if self._ends is not None:
            _write_to(_NONE, instead_of=self._ends[1])
        if self._handles and signal.getsignal(signal.SIGINT) == self._pressed:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self._handles = False
        interrupter.on_strike = None
        interrupter.close_all()
        if self._due:
            self._due = False
            raise KeyboardInterrupt

    # ------------------------------------------------------------ inside

    def _pressed(self, _signal: int, frame: Optional[FrameType]) -> None:
        self._presses += 1
        self._due = True
        if self._presses > 1 or self._ends is None or not is_protected(frame):
            self._raise()

    def _strike(self, frame: Optional[FrameType]) -> bool:
        """Raise what is due, if it may be; whether it still is, otherwise."""
        if self._due and not is_protected(frame):
            self._raise()
        return self._due

    def _raise(self) -> None:
        self._due = False
        raise KeyboardInterrupt

    def _listen(self) -> None:
        """Have a byte written for each signal, unless a loop of the caller's has."""
        if self._ends is None:
            reader, writer = self._ends = os.pipe()
            os.set_blocking(writer, False)
            threading.Thread(target=_rouse, args=(reader,), name="farhand-keyboard", daemon=True).start()
        _write_to(self._ends[1], instead_of=_NONE)

    def _forked(self) -> None:
        """The pipe is the parent's, and so is the thread that reads it."""
        if self._ends is not None:
            _write_to(_NONE, instead_of=self._ends[1])
            for end in self._ends:
                os.close(end)
            self._ends = None


def _write_to(fd: int, instead_of: int) -> None:
    before = signal.set_wakeup_fd(fd, warn_on_full_buffer=False)
    if before != instead_of:
        signal.set_wakeup_fd(before)


def _rouse(reader: int) -> None:
    while True:
        signals: Any = os.read(reader, _BYTES)
        if any(number != SIGNAL for number in signals):
            interrupter.rouse()


keyboard = Keyboard()
"""Signals belong to the process."""
