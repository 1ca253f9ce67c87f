"""Trees of processes: who is below whom, and an end of them that none escapes. Standard library only."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from typing import Dict, Iterable, List, Set

LINUX = sys.platform.startswith("linux")
LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Make this process the parent of every orphan among its descendants."""
    if LINUX:
        set_subreaper(True)


def set_subreaper(adopts: bool) -> None:
    """Whether this process is the parent of the orphans among its descendants; Linux only."""
    LIBC.prctl(_PR_SET_CHILD_SUBREAPER, int(adopts), 0, 0, 0)


def parents() -> Dict[int, int]:
    """The parent of every process, zombies included, by process id."""
    if not LINUX:
        with os.popen("ps -axo pid=,ppid=") as listing:  # pyright: ignore[reportDeprecated] - small
            return {int(pid): int(parent) for pid, parent in (line.split() for line in listing)}
    found: Dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    text = file.read()
            except OSError:
                continue
            # The command comes in parentheses and may itself hold any of them.
            found[int(name)] = int(text[text.rindex(b")") + 2 :].split(None, 2)[1])
    return found


def children_of(pid: int) -> Set[int]:
    """The processes whose parent is ``pid``."""
    return {child for child, parent in parents().items() if parent == pid}


def own_children() -> Set[int]:
    """The children of this process, which has one thread and is the only one to take their ends.

    So the kernel's short list holds them all. Without it every process of the machine is looked at.
    """
    try:
        with open("/proc/thread-self/children", "rb") as file:
            return {int(pid) for pid in file.read().split()}
    except OSError:
        return children_of(os.getpid())


def kill_trees(roots: Iterable[int]) -> Set[int]:
    """SIGKILL each root with all its descendants, and say which processes that were.

    They are stopped first, from the top down, until a look around shows no new one: what is being
    killed cannot outrun the kill by forking.
    """
    wanted = list(roots)
    known: Set[int] = set()
    while wanted:
        fresh = [pid for pid in _top_down(wanted) if pid not in known]
        if not fresh:
            break
        for pid in fresh:
            _send(pid, signal.SIGSTOP)
        known.update(fresh)
    for pid in known:
        _send(pid, signal.SIGKILL)
    return known


def _top_down(roots: List[int]) -> List[int]:
    below: Dict[int, List[int]] = {}
    for pid, parent in parents().items():
        below.setdefault(parent, []).append(pid)
    order = list(dict.fromkeys(roots))
    seen = set(order)
    for pid in order:
        for child in below.get(pid, ()):
            if child not in seen:
                seen.add(child)
                order.append(child)
    return order


def _send(pid: int, number: int) -> None:
    # Gone already, or a set-user-id program that this user may not signal: nothing can be done.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def collect(pid: int) -> bool:
    """Take the end of a dead child off the process table; whether it is gone."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return pid not in parents()
