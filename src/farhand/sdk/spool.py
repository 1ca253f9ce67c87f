"""The engine's spool: one file a job, one line an event, written at once.

The agent reads the file as it grows. After a write the engine rings its bell if the agent has armed it,
and for an urgent event also if not, unless an urgent bell is on its way already; on ``arm`` it rings again
when more has been written than the agent says it has read. So neither side polls, and no line waits unseen.
An agent that will look soon after it has handed a job over begins unarmed, and is spared the first bell. One
that takes urgent bells ``unanswered`` looks for each, and arms nothing by that.

What the server has not acknowledged counts against ``SPOOL_BYTES_MAX``: beyond it log lines are dropped
and counted, and other events wait.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, Callable, Optional, Union

from . import events
from .context import Recorder
from .limits import SPOOL_BYTES_MAX

Send = Callable[..., None]
Ask = Callable[[str, Any], Any]

_LOG = '["log",'
_AGAIN_S = 1.0


class Spool(Recorder):
    """Writes the events of one job. Thread-safe; in a forked child it is to be told so."""

    recording = True
    synced = False  # no line of a spool is either; the server has what it acknowledges on its own disk

    def __init__(
        self,
        path: Union[str, Path],
        blobs: Union[str, Path],
        send: Send,
        ask: Ask,
        bytes_max: int = SPOOL_BYTES_MAX,
        *,
        armed: bool = True,
        ring: Optional[Callable[[], None]] = None,
    ) -> None:
        self._blobs = blobs
        self._fd = _opened(path)
        self._send = send
        self._ask = ask
        self._bytes_max = bytes_max
        self._lock = threading.RLock()
        self._changed: Optional[threading.Condition] = None
        """There once somebody has waited for room, or for an acknowledgement."""
        self._armed = armed
        self._unanswered = ring
        self._rung_urgently = False
        self._begin = os.lseek(self._fd, 0, os.SEEK_END)  # a file that was used before begins with a line
        self._size = self._acked = self._begin
        self._dropped = 0
        self._ended = False
        self._closed = False

    @property
    def blobs(self) -> Path:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Where files are saved: many jobs save none."""
        if not isinstance(self._blobs, Path):
            self._blobs = Path(self._blobs)
        return self._blobs

    def write(self, text: str, urgent: bool = False) -> None:
        """Append one line, whole, before anything else happens."""
        with self._lock:
            if self._has_room(text):
                try:
                    self._append(self._shown(text))
                finally:
                    if urgent or self._armed:
                        self._ring(urgent)

    def end(self, text: str) -> None:
        """Append the last line there is. No bell is rung for it: whoever writes it says so."""
        with self._lock:
            if self._has_room(text):
                self._append(self._shown(text))
            self._ended = True

    def armed(self, read: int, acked: Optional[int] = None) -> None:
        """The agent has read so far and waits for a bell."""
        with self._lock:
            if acked is not None and acked > self._acked:
                self._acked = acked
                self._notify()
            urgent, self._rung_urgently = self._rung_urgently, False
            self._armed = True
            if not self._ended and self._size > max(read, self._begin):
                self._ring(urgent)

    def settle(self, check: Callable[[], None]) -> None:
        """Wait until the server has recorded what is written so far. ``check`` raises to give up."""
        with self._lock:
            end = self._size
        while not self._recorded(end):
            check()

    def _recorded(self, end: int) -> bool:
        """Ask the agent to tell when it has an acknowledgement, and wait a while for that."""
        with self._lock:
            if self._acked < end and not self._closed:
                self._send("bell", urgent=True, ack=True)
                self._wait()
            return self._acked >= end or self._closed

    def blob_path(self, digest: str) -> Path:
        """The verified file of a digest: what this job saved itself, or what the agent has or fetches."""
        return self.saved(digest) or Path(self._ask("blob", {"digest": digest})["path"])

    def value_path(self, digest: str) -> Path:
        """The same, which may be the server's own file: whoever gets it only reads it, and at once."""
        return self.saved(digest) or Path(self._ask("blob", {"digest": digest, "read": True})["path"])

    def close(self) -> None:
        """Nothing more is written; what threads left behind still say is dropped."""
        with self._lock:
            self._ended = True
            if not self._closed:
                self._closed = True
                os.close(self._fd)
            self._notify()

    def show(self, formatter: Any, record: Any) -> None:
        """An engine has no terminal."""

    def _has_room(self, text: str) -> bool:
        """Whether a line is to be written, once there is room for it; one of the log is not waited with."""
        if self._ended:
            return False
        if self._size - self._acked > self._bytes_max:
            if text.startswith(_LOG):
                self._dropped += 1
                return False
            self._wait_for_room()
        return not self._closed

    def _shown(self, text: str) -> bytes:
        content = (text if self.mask is None else self.mask(text)).encode()
        return self._marker() + content if self._dropped else content

    def _append(self, content: bytes) -> None:
        end = self._size + len(content)
        try:
            while content:
                content = content[os.write(self._fd, content) :]
        except OSError:  # a full disk: a torn line would join the next one
            os.ftruncate(self._fd, self._size)
            raise
        self._size = end

    def _ring(self, urgent: bool) -> None:
        if urgent and self._unanswered is not None:
            self._unanswered()
        elif self._armed or (urgent and not self._rung_urgently):
            self._armed = False
            self._rung_urgently = urgent
            self._send("bell", urgent=urgent)

    def _wait(self) -> None:
        """A while, with the lock given away, or until there is an acknowledgement."""
        if self._changed is None:
            self._changed = threading.Condition(self._lock)
        self._changed.wait(_AGAIN_S)

    def _notify(self) -> None:
        if self._changed is not None:
            self._changed.notify_all()

    def _wait_for_room(self) -> None:
        while self._size - self._acked > self._bytes_max and not self._closed:
            self._send("bell", urgent=True)
            self._wait()

    def _marker(self) -> bytes:
        text = f"{self._dropped} lines of output were dropped: the log was full"
        self._dropped = 0
        return events.log(events.now(), text, "log", "warning", None).encode("ascii")

    def after_fork(self) -> None:
        """This is a forked child, which records nothing."""
        if not self._closed:
            os.close(self._fd)
        self._ended = self._closed = True
        self._lock, self._changed = threading.RLock(), None


def _opened(path: Union[str, Path]) -> int:
    """The file. The agent has made it, and its directory; who clears temporary files away may be quicker."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        return os.open(path, flags, 0o600)
