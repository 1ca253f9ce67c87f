"""The state directory: everything a worker writes, its lock, and what an earlier agent left in it."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import time
from pathlib import Path
from typing import Optional, Set

from .machine import ENGINE_ID_VARIABLE
from .trees import LINUX, kill_trees

_SWEEP_S = 5.0
_LOCK_TRIES, _LOCK_AGAIN_S = 6, 0.05


class StateRefused(Exception):
    """The state directory cannot be used; the message says why and what would help."""


class StateDirectory:
    """One agent's directory, locked for as long as the agent lives.

    ``identity`` belongs to the directory and stays; ``instance`` is new with every agent. An engine's id
    begins with the identity, so that what an earlier agent's engines left running is known by it.

    ``spool`` is where reports wait, ``scratch`` where jobs have their working directories, ``blobs`` where
    what was fetched lies by digest, and ``runtimes`` what engines run; ``outgoing`` has what jobs have saved,
    a directory an attempt, until that is recorded.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.spool = path / "spool"
        self.scratch = path / "scratch"
        self.blobs = path / "blobs"
        self.outgoing = path / "outgoing"
        self.runtimes = path / "runtime"
        self.instance = secrets.token_hex(8)
        self.identity = ""
        self.previous: Optional[str] = None
        self._lock: Optional[int] = None

    def open(self) -> None:
        """Make, check and lock the directory. Raises `StateRefused`."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = os.lstat(self.path)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            raise StateRefused(f"{self.path} is not this user's directory; choose another with --state-dir")
        os.chmod(self.path, 0o700)
        self._take_lock()
        for name in ("spool", "scratch", "blobs", "outgoing", "runtime", "bundles"):
            (self.path / name).mkdir(exist_ok=True)
        self.previous = _read(self.path / "instance")
        self.identity = _read(self.path / "identity") or secrets.token_hex(6)
        _write(self.path / "identity", self.identity)

    def sweep(self) -> Optional[str]:
        """Kill what the engines of earlier agents left running; the instance that is now surely gone.

        None when there was none, or when something would not die. What this agent has begun is spared.
        """
        until = time.monotonic() + _SWEEP_S
        left = carriers(self.identity + ".", self._own)
        while left and time.monotonic() < until:
            kill_trees(left)
            time.sleep(0.002)
            left = carriers(self.identity + ".", self._own)
        _write(self.path / "instance", self.instance)
        return None if left else self.previous

    def engine_id(self, number: int) -> str:
        """The id of this agent's ``number``-th engine."""
        return f"{self._own}{number}"

    @property
    def _own(self) -> str:
        return f"{self.identity}.{self.instance}."

    def unsent(self) -> int:
        """How many files wait here for a server: reports, and what jobs have saved."""
        return sum(path.is_file() for kept in (self.spool, self.outgoing) for path in kept.rglob("*"))

    def remove(self) -> bool:
        """Remove the directory, unless something in it waits for a server; whether it is gone.

        It is moved aside first: whoever takes its place meanwhile has one of its own.
        """
        if self.unsent():
            return False
        aside = self.path.with_name(f"{self.path.name}.{self.instance}")
        try:
            self.path.rename(aside)
        except OSError:
            return False
        shutil.rmtree(aside, ignore_errors=True)
        return not aside.exists()

    def close(self) -> None:
        """Give the directory up to the next agent."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _take_lock(self) -> None:
        fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not _locked(fd):
            holder = os.pread(fd, 64, 0).decode().split()
            os.close(fd)
            who = f"the worker with process id {holder[0]}" if holder else "another worker"
            raise StateRefused(f"{who} uses {self.path}; stop it, or choose another --state-dir")
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()} {self.instance}\n".encode(), 0)
        self._lock = fd


def _locked(fd: int) -> bool:
    """Take the lock. Whoever only looks whether it is taken holds it for a moment, hence the patience."""
    import fcntl  # not there on Windows, where the program says that it does not run

    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            time.sleep(_LOCK_AGAIN_S)
    return False


def carriers(prefix: str, spared: Optional[str] = None) -> Set[int]:
    """The processes whose environment carries an engine id that begins with ``prefix``, not ``spared``."""
    if not LINUX:
        return set()
    mark = f"{ENGINE_ID_VARIABLE}={prefix}".encode()
    own = None if spared is None else f"{ENGINE_ID_VARIABLE}={spared}".encode()
    found: Set[int] = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                environ = Path("/proc", name, "environ").read_bytes()
            except OSError:
                continue  # another user's process, or gone
            if _has(environ, mark) and not (own is not None and _has(environ, own)):
                found.add(int(name))
    return found


def _has(environ: bytes, start: bytes) -> bool:
    return environ.startswith(start) or b"\0" + start in environ


def _read(path: Path) -> Optional[str]:
    try:
        return path.read_text().strip() or None
    except FileNotFoundError:
        return None


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(text + "\n")
    temporary.replace(path)
