"""Lines: attempts that share a slot, and begin there one after another.

The server hands some calls and runs over before their slot is free, because those before them are short.
What turns out otherwise holds nobody up: when the one that runs takes longer than ``behind_s``, waits for
calls of its own, or loses its engine, those behind it are given back unbegun.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Callable, Deque, Dict, Optional, Protocol

from .protocol import Assign


class InLine(Protocol):
    """An attempt, as far as its line goes."""

    assign: Assign
    blocked: bool

    def begin(self) -> None:
        """Its turn has come."""

    def give_back(self, why: str) -> None:
        """It is not to begin here any more."""


class Line:
    """One slot: who has it, and who waits for it. ``emptied`` is called when nobody is left."""

    def __init__(self, behind_s: Callable[[], float], emptied: Callable[[], object]) -> None:
        self._behind_s = behind_s
        self._emptied = emptied
        self._loop = asyncio.get_running_loop()
        self._first: Optional[InLine] = None
        self._seen: Optional[InLine] = None
        self._waiting: Deque[InLine] = deque()
        self._timer: Optional[asyncio.TimerHandle] = None

    @property
    def busy(self) -> bool:
        """Whether somebody has the slot."""
        return self._first is not None

    @property
    def followed(self) -> bool:
        """Whether somebody waits for it."""
        return bool(self._waiting)

    def join(self, attempt: InLine) -> None:
        """The last in the line; it begins at once where it is the only one."""
        self._waiting.append(attempt)
        if self._first is None:
            self._advance()
        else:
            self._look()

    def leave(self, attempt: InLine, trouble: str = "") -> None:
        """It is done, or will never begin. After ``trouble`` those behind it are given back."""
        if attempt is self._first:
            if trouble:
                self.give_back(trouble)
            self._first = None
            self._advance()
        elif attempt in self._waiting:
            self._waiting.remove(attempt)
            attempt.begin()

    def give_back(self, why: str) -> None:
        """Let nobody wait here any more."""
        waiting, self._waiting = self._waiting, deque()
        for attempt in waiting:
            attempt.give_back(why)
            attempt.begin()

    def look(self) -> None:
        """Whoever has the slot may wait for others now."""
        if self._waiting:
            self._look()

    def _advance(self) -> None:
        if self._waiting:
            self._first = self._waiting.popleft()
            self._first.begin()
            self.look()
        else:
            if self._timer is not None:
                self._timer.cancel()
            self._emptied()

    def _look(self) -> None:
        if self._first is not None and self._first.blocked:
            self.give_back("the one before it on its slot waits for calls of its own")
        elif self._timer is None:
            self._seen = None
            self._watch()

    def _watch(self) -> None:
        self._timer = self._loop.call_later(self._behind_s() / 2, self._look_again)

    def _look_again(self) -> None:
        """Whoever has had the slot for two looks takes long. One look would not do: a machine with much to do
        may have had none of us run between them."""
        self._timer = None
        if self._waiting and self._seen is self._first:
            self.give_back("the one before it on its slot takes long")
        elif self._waiting:
            self._seen = self._first
            self._watch()


class Lines:
    """The lines of one worker, by the lease under which each slot was taken."""

    def __init__(self, behind_s: Callable[[], float]) -> None:
        self._behind_s = behind_s
        self._lines: Dict[int, Line] = {}

    def of(self, assign: Assign) -> Line:
        """The line of an attempt that is about to join it."""
        if assign.behind is not None and assign.behind in self._lines:
            return self._lines[assign.behind]
        number = assign.behind or assign.lease
        line = self._lines[number] = Line(self._behind_s, lambda: self._emptied(number, line))
        return line

    def forget(self, assign: Assign) -> None:
        """An attempt will not join the line that was made for it, unless others have."""
        number = assign.behind or assign.lease
        line = self._lines.get(number)
        if line is not None and not line.busy:
            del self._lines[number]

    @property
    def followed(self) -> bool:
        """Whether somebody waits in one."""
        return any(line.followed for line in self._lines.values())

    def _emptied(self, number: int, line: Line) -> None:
        if self._lines.get(number) is line:
            del self._lines[number]

    def give_back(self, why: str) -> None:
        """Let nobody wait any more."""
        for line in list(self._lines.values()):
            line.give_back(why)
