"""Files that appear whole: written beside their place, synced, and put there in one step."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
from typing import Any, Callable, Optional, Tuple, Type

_MARK = "writing-"


class Place:
    """A file that is being written beside the one whose place it will take.

    Its writer holds a lock on it, so that the next one can tell what a dead one has left, and removes it.
    """

    def __init__(self, wanted: str) -> None:
        self._wanted = wanted
        directory, name = os.path.split(wanted)
        os.makedirs(directory, exist_ok=True)
        if os.path.isdir(wanted):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), wanted)
        start = f".{os.fsdecode(os.fsencode(name)[:100])}.{_MARK}"
        clear(directory, start)
        self.fd, self._path = begun(os.path.join(directory, start))
        self._open = True
        self._writer = os.getpid()

    @property
    def ours(self) -> bool:
        """Whether this process began it: a fork has it too, and neither publishes nor removes it."""
        return self._writer == os.getpid()

    def publish(self) -> None:
        """Put it where it belongs. What it holds is on disk first."""
        os.fsync(self.fd)
        os.replace(self._path, self._wanted)
        self._open = False
        _sync(os.path.dirname(self._wanted))

    def discard(self) -> None:
        """It is not wanted, or not ours: what a fork has buffered must then not reach the file either."""
        if not self.ours:
            _drown(self.fd)
        elif self._open:
            self._open = False
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)


def _drown(fd: int) -> None:
    """Have what is still written to this descriptor go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.dup2(nowhere, fd, inheritable=False)
    finally:
        os.close(nowhere)


def begun(start: str) -> Tuple[int, str]:
    """A new file of this beginning that its writer has locked."""
    while True:
        path = start + os.urandom(6).hex()
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        locked = _locked(fd)
        if locked is None or (locked and _is_there(fd, path)):
            return fd, path
        os.close(fd)  # another writer took it for a dead one's before it was locked


def clear(directory: str, start: str) -> None:
    """Remove what dead writers of the same target have left."""
    with os.scandir(directory) as found:
        paths = [entry.path for entry in found if entry.name.startswith(start)]
    for path in paths:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue  # its writer is done, or it is another user's
        try:
            if _locked(fd) and _is_there(fd, path):
                os.unlink(path)
        except FileNotFoundError:
            pass
        finally:
            os.close(fd)


def _locked(fd: int) -> Optional[bool]:
    """Whether the lock of a file is now ours; None where a file system has no locks."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_there(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _sync(directory: str) -> None:
    """Have the new name survive a loss of power, where the file system can."""
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.fsync(fd)
    except OSError:
        pass  # some file systems sync no directories
    finally:
        os.close(fd)


class _Whole:
    """What closes a file that is written: at a clean end it takes the target's place, else it goes."""

    place: Place
    closed: bool
    flush: Callable[[], None]
    _finish: Callable[[], None]

    def close(self) -> None:
        """Put it in place. Raises OSError when it cannot be; the target is then what it was."""
        if self.closed:
            return
        try:
            if self.place.ours:
                self.flush()
                self.place.publish()
        finally:
            self._drop()

    def _drop(self) -> None:
        self.place.discard()
        self._finish()

    def __exit__(self, kind: Optional[Type[BaseException]], error: Any, trace: Any) -> None:
        if kind is None:
            self.close()
        elif not self.closed:
            self._drop()

    def __del__(self) -> None:
        if hasattr(self, "place") and not self.closed:
            self._drop()


class Octets(_Whole, io.BufferedWriter):  # type: ignore[misc]
    """Bytes on their way to a target."""

    def __init__(self, place: Place) -> None:
        io.BufferedWriter.__init__(self, io.FileIO(place.fd, "wb"))
        self.place = place

    def _finish(self) -> None:
        io.BufferedWriter.close(self)


class Text(_Whole, io.TextIOWrapper):  # type: ignore[misc]
    """Text on its way to a target."""

    def __init__(self, place: Place, encoding: Optional[str], newline: Optional[str]) -> None:
        inner = io.BufferedWriter(io.FileIO(place.fd, "wb"))
        io.TextIOWrapper.__init__(self, inner, encoding=encoding, newline=newline)
        self.place = place

    def _finish(self) -> None:
        io.TextIOWrapper.close(self)
