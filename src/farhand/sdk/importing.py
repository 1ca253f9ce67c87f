"""Imports a project's modules, each in a child process of its own, and collects what each defines.

A module may raise, end its process, crash it or never return: it is reported by name, and no other module
notices. The children are forks of a process that has loaded the sdk, so that each costs little.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

from .closure import Source
from .encoding import traceback_of

Document = Dict[str, Any]
Describe = Callable[[Source, str], List[Document]]
Outcome = Tuple[str, List[Document], List[Document]]
"""A file, its flows, and what is wrong with it (nothing, or one failure)."""

AT_ONCE = 2
_END = b"\n"
_PR_SET_PDEATHSIG = 1


class _Child:
    """A process that imports one file and writes its flows, or its failure, to a pipe."""

    def __init__(self, file: str, pid: int, pipe: int) -> None:
        self.file = file
        self.pid = pid
        self.pipe = pipe
        self.began = time.monotonic()
        self.said = b""

    def end(self) -> int:
        """End it and what it started; returns its status."""
        for kill in (os.killpg, os.kill):
            try:
                kill(self.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        os.close(self.pipe)
        return os.waitpid(self.pid, 0)[1]


class Importing:
    """The imports that wait or are under way."""

    def __init__(self, root: Path, sources: Sequence[Source], describe: Describe, timeout_s: float) -> None:
        self._root = root
        self._waiting = list(sources)
        self._describe = describe
        self._timeout_s = timeout_s
        self._selector = selectors.DefaultSelector()
        self._children: List[_Child] = []

    @property
    def pending(self) -> List[str]:
        """The files that are not finished."""
        waiting = [source.path.relative_to(self._root).as_posix() for source in self._waiting]
        return [child.file for child in self._children] + waiting

    def outcomes(self, tick_s: float) -> Iterator[Outcome | None]:
        """Each outcome as it comes, and None whenever none came for ``tick_s``."""
        try:
            while self._waiting or self._children:
                while self._waiting and len(self._children) < AT_ONCE:
                    self._begin(self._waiting.pop(0))
                ready = self._selector.select(min(tick_s, self._timeout_s))
                finished = [self._read(key.data) for key, _ in ready] + self._overdue()
                yield from [outcome for outcome in finished if outcome is not None]
                if not ready:
                    yield None
        finally:
            self.close()

    def close(self) -> None:
        """End what is still under way."""
        while self._children:
            self._children.pop().end()
        self._selector.close()

    def _begin(self, source: Source) -> None:
        file = source.path.relative_to(self._root).as_posix()
        ours, theirs = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            os.close(ours)
            _import_in_child(source, file, self._describe, theirs)
        os.close(theirs)
        child = _Child(file, pid, ours)
        self._children.append(child)
        self._selector.register(ours, selectors.EVENT_READ, child)

    def _read(self, child: _Child) -> Outcome | None:
        piece = os.read(child.pipe, 1 << 16)
        child.said += piece
        if child.said.endswith(_END):
            self._finish(child)
            document = json.loads(child.said)
            return child.file, document["flows"], document["errors"]
        if piece:
            return None
        reason = _ending(self._finish(child))
        return child.file, [], [{"file": child.file, "error": f"the process ended while importing: {reason}"}]

    def _overdue(self) -> List[Outcome | None]:
        now = time.monotonic()
        late = [child for child in self._children if now - child.began > self._timeout_s]
        outcomes: List[Outcome | None] = []
        for child in late:
            self._finish(child)
            error = f"did not finish importing in {self._timeout_s:g} s"
            outcomes.append((child.file, [], [{"file": child.file, "error": error}]))
        return outcomes

    def _finish(self, child: _Child) -> int:
        self._selector.unregister(child.pipe)
        self._children.remove(child)
        return child.end()


def failure(file: str, error: BaseException) -> Document:
    """An exception as an entry of ``errors``."""
    return {"file": file, "error": f"{type(error).__name__}: {error}", "traceback": traceback_of(error)}


def _import_in_child(source: Source, file: str, describe: Describe, pipe: int) -> None:
    """Does not return."""
    try:
        os.setpgid(0, 0)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        document: Document = {"flows": [], "errors": []}
        try:
            document["flows"] = describe(source, file)
        except BaseException as error:  # noqa: BLE001 - a module may raise anything, SystemExit too
            document["errors"] = [failure(file, error)]
        said = json.dumps(document).encode() + _END
        while said:
            said = said[os.write(pipe, said) :]
    finally:
        os._exit(0)  # threads and exit handlers of user modules have no say in when this ends


def _ending(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    return f"exit {os.WEXITSTATUS(status)}"
