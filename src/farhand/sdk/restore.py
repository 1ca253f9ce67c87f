"""Putting an engine's process back as it was: whatever a job started or changed ends with it."""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports]
import logging
import os
import signal
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Set, Tuple

_OURS = "farhand-"
getsignal: Callable[[int], Any] = _signal.getsignal  # pyright: ignore[reportUnknownMemberType]
_SIGNALS = tuple(int(number) for number in signal.valid_signals())
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_ROUNDS = 200
_ROUND_S = 0.005
_THREADS_S = 0.2


class Snapshot:
    """What a job may change of its process. Taken before the first job of a bundle, put back after each: one
    that could not be put back is the last.

    The next job may wait for that, so it asks below the standard library's conversions: signal handlers are
    not looked up as enum members, and the environment is copied and compared as the bytes it is kept as.
    """

    def __init__(self) -> None:
        self.threads = dict.fromkeys(threading.enumerate())
        self._cwd = _cwd()
        self._environ = dict(_environ_kept())
        self._umask = _umask()
        self._signals = list(map(getsignal, _SIGNALS))
        self._path = list(sys.path)
        self._argv = list(sys.argv)
        self._hooks = (sys.excepthook, threading.excepthook)
        root = logging.getLogger()
        self._root_handlers, self._root_level = list(root.handlers), root.level
        self._disabled = root.manager.disable

    def restore(self) -> bool:
        """Put everything back; False when something could not be."""
        try:
            self._restore()
        except Exception:  # noqa: BLE001 - whatever resists costs this engine, not the job's result
            return False
        return True

    def _restore(self) -> None:
        os.chdir(self._cwd)
        self._restore_environ()
        os.umask(self._umask)
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if list(map(getsignal, _SIGNALS)) != self._signals:
            self._restore_signals()
        sys.path[:] = self._path
        sys.argv[:] = self._argv
        sys.excepthook, threading.excepthook = self._hooks
        root = logging.getLogger()
        root.handlers[:] = self._root_handlers
        if root.level != self._root_level:
            root.setLevel(self._root_level)
        if root.manager.disable != self._disabled:
            logging.disable(self._disabled)

    def _restore_signals(self) -> None:
        for number, handler in zip(_SIGNALS, self._signals):  # noqa: B905 - not in Python 3.9
            if handler is not None and getsignal(number) is not handler:
                signal.signal(number, handler)

    def _restore_environ(self) -> None:
        if _environ_kept() == self._environ:
            return
        before = {os.fsdecode(name): os.fsdecode(value) for name, value in self._environ.items()}
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update(before)


def _environ_kept() -> Mapping[Any, Any]:
    """The environment as CPython keeps it, bytes by bytes; another interpreter's as it shows it."""
    return getattr(os.environ, "_data", os.environ)


def _cwd() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "/"  # it was removed under us


def _umask() -> int:
    now = os.umask(0o077)
    os.umask(now)
    return now


def memory_bytes() -> int:
    """How much memory this process holds; its highest mark where the present is not known."""
    try:
        fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        try:  # not by open(): its buffer and its decoder would cost ten times what the reading does
            return int(os.read(fd, 256).split()[1]) * _PAGE_BYTES
        finally:
            os.close(fd)
    except (OSError, ValueError, IndexError):
        import resource  # noqa: PLC0415 - only where there is no /proc

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


# ---------------------------------------------------------------- descendants
# On Linux the warden has made this process a subreaper before it began: descendants whose parent ends become
# our children, so none can hide.


def end_descendants() -> bool:
    """Kill every descendant and reap it; False when some are still there."""
    for _ in range(_ROUNDS):
        if _has_no_children():
            return True
        found = descendants(os.getpid())
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        _reap()
        if not found:
            return True
        time.sleep(_ROUND_S)
    return False


def _has_no_children() -> bool:
    """Whether there is not even a dead child; a subreaper without one has no descendants at all."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return sys.platform.startswith("linux")
    return False


def descendants(root: int) -> List[int]:
    """The processes below ``root``, parents first. Empty where there is no /proc."""
    found: List[int] = []
    waiting = [root]
    seen: Set[int] = {root}
    while waiting:
        for child in _children(waiting.pop(0)):
            if child not in seen:
                seen.add(child)
                found.append(child)
                waiting.append(child)
    return found


def _children(pid: int) -> List[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    found: List[int] = []
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                found.extend(map(int, file.read().split()))
        except FileNotFoundError:
            if not os.path.exists("/proc/thread-self/children") and thread == str(pid):
                return _children_by_scan(pid)
        except OSError:
            continue
    return found


def _children_by_scan(pid: int) -> List[int]:
    """The children of a process on a kernel that does not list them."""
    return [child for child, parent in _parents() if parent == pid]


def _parents() -> List[Tuple[int, int]]:
    pairs: List[Tuple[int, int]] = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as file:
                pairs.append((int(name), int(file.read().rpartition(")")[2].split()[1])))
        except OSError:
            continue
    return pairs


def _reap() -> None:
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return


# ---------------------------------------------------------------- threads


def threads_remain(before: Dict[Any, Any]) -> bool:
    """Whether user code left threads behind, after a moment to end."""
    deadline = time.monotonic() + _THREADS_S
    while True:
        left = [t for t in threading.enumerate() if t not in before and not t.name.startswith(_OURS)]
        if not left or time.monotonic() > deadline:
            return bool(left)
        left[0].join(max(0.0, deadline - time.monotonic()))
