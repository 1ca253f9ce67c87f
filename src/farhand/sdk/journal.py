"""The record of a script's run: ``<home>/inbox/<run>.jsonl``, which the store's owner imports.

The file is created under a temporary name, locked with flock, given its first line and only then renamed
into the inbox: who finds it there finds it locked, as long as the script lives. A forked child closes its
descriptor and records nothing, so the lock ends with the script. After each write one datagram tells the
owner, if there is one. A home that cannot be written costs one warning, and the run goes on.
"""

from __future__ import annotations

import fcntl
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, Optional

from . import events
from .context import Recorder
from .forks import forget, on_fork
from .references import hex_of

_QUIET_S = 1.0


class Journal(Recorder):
    """Appends to one journal. Thread-safe."""

    recording = True

    def __init__(self, home: Path, run_id: str, first: Dict[str, Any]) -> None:
        inbox = home / "inbox"
        inbox.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.blobs: Optional[Path] = inbox / "blobs"
        self._socket = Bell(home / "inbox.sock")
        self._lock = threading.Lock()
        self._closed = False
        temporary = inbox / f".{run_id}.new"
        self._fd = os.open(
            temporary, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
        )
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(self._fd, events.line("script", first).encode("ascii"))
            os.rename(temporary, inbox / f"{run_id}.jsonl")
        except BaseException:  # nothing half-made may stay behind
            os.close(self._fd)
            temporary.unlink()
            raise
        self._forked = on_fork(self._after_fork)
        self._socket.ring()

    def write(self, text: str, urgent: bool = False) -> None:
        """Append one line; the first failure ends the recording, never the run."""
        if self.mask is not None:
            text = self.mask(text)
        if self.watch is not None:
            self.watch(text)
        content = text.encode("ascii")
        with self._lock:
            if self._closed:
                return
            try:
                while content:
                    content = content[os.write(self._fd, content) :]
            except OSError as error:
                self._give_up(error)
                return
        self._socket.ring()

    def settle(self, check: Callable[[], None]) -> None:
        """Put the record on the disk; there is no other machine that could have it."""
        with self._lock:
            if not self._closed:
                os.fsync(self._fd)

    def blob_path(self, digest: str) -> Path:
        """The file of a digest that this home has."""
        name = hex_of(digest)
        for directory in (self.blobs_or_temporary(), self.blobs_or_temporary().parent.parent / "blobs"):
            if (directory / name).exists():
                return directory / name
        raise FileNotFoundError(f"{digest} is not in this home")

    def close(self) -> None:
        """End the record and release the lock."""
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._fd)
        forget(self._forked)  # not left to the end of this object, which may come in any moment
        self._socket.close()

    def _give_up(self, error: OSError) -> None:
        self._closed = True
        os.close(self._fd)
        warn(f"the rest of this run is not recorded: {error}")

    def _after_fork(self) -> None:
        if not self._closed:
            os.close(self._fd)
        self._closed = True
        self._lock = threading.Lock()
        self._socket.close()


class Bell:
    """Tells the store's owner that there is something to read. Nobody need be there."""

    def __init__(self, address: Path) -> None:
        self._address = str(address)
        self._socket: Any = None
        self._quiet_until = 0.0

    def ring(self) -> None:
        """Send one datagram, unless nobody answered a moment ago."""
        if self._quiet_until and time.monotonic() < self._quiet_until:
            return
        if self._socket is None and not os.path.exists(self._address):
            self._quiet_until = time.monotonic() + _QUIET_S
            return
        try:
            if self._socket is None:
                import socket  # noqa: PLC0415 - most scripts have nobody to tell

                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self._socket.setblocking(False)
            self._socket.sendto(b"\n", self._address)
            self._quiet_until = 0.0
        except BlockingIOError:
            pass  # it has been told often enough
        except OSError:
            self._quiet_until = time.monotonic() + _QUIET_S

    def close(self) -> None:
        """Nothing more to tell."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._quiet_until = float("inf")


def warn(text: str) -> None:
    """A line for whoever started the script."""
    stream: Any = getattr(sys.stderr, "original", None) or sys.stderr
    if stream is not None:
        stream.write(f"farhand: {text}\n")
