"""The engine's end of the socket to its agent.

A frame is four bytes of length, big-endian, and a JSON header of that length; a header with ``body: n``
is followed by n raw bytes. Any thread writes, and one at a time reads. Between jobs that is the thread which
waits for the next one, so nobody need be woken to begin it; while that thread waits for what comes from
elsewhere it reads again, for the same reason. Else it is a thread that stands by: it looks every now and then
whether anybody reads, and at once when something is expected that nobody waits for. So a job that is over
before it looks costs no change of threads, and a cancel waits no longer than for its look.

At the end of the file the agent is gone, and with it every right to go on: the process exits at once, and so
it does when it cannot write. Nor does it go on deaf: what ends the thread that stands by ends the process.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import queue
import select
import termios
import threading
import time
import traceback
from contextlib import suppress
from typing import Any, Callable, Dict, Optional, Tuple

from farhand.errors import Conflict, FarhandError, Forbidden, NotFound

from .events import dumps
from .forks import on_fork
from .futures import Arrival
from .inlet import LENGTH, Inlet
from .interrupts import interrupter, uninterrupted

Header = Dict[str, Any]
Handler = Callable[[Header], None]

_REFUSALS = {cls.code: cls for cls in (Conflict, Forbidden, NotFound)}
_ORPHANED = 75
"""The exit code of an engine whose agent is gone."""
_DEAF = 70
"""The exit code of an engine that cannot listen to its agent, for a mistake of its own."""

LOOK_S = 0.02
"""So often the thread that stands by looks whether anybody reads, while there are jobs."""

_LOOKS_MAX = 25
"""After so many looks without another job it looks no more until there is one."""


def pack(kind: str, fields: Header) -> bytes:
    """One frame."""
    header = dumps({"type": kind, **fields}).encode("ascii")
    return LENGTH.pack(len(header)) + header


_FEW = 2
_FREQUENT: Dict[Any, bytes] = {
    (kind, *fields.items()): pack(kind, fields)
    for kind, fields in (
        ("bell", {"urgent": False}),
        ("bell", {"urgent": True}),
        ("result", {}),
        ("done", {"retire": False}),
    )
}
"""What every call sends is packed once."""

_BELL = pack("bell", {"urgent": True, "unanswered": True})
_NOTHING = bytes(4)
_WAKES = 64
"""More than are ever sent before one is read."""


def refused(code: Optional[str], message: str) -> FarhandError:
    """The exception of a refusal that came with a code."""
    return _REFUSALS.get(code or "", FarhandError)(message)


class Channel:
    """Sends and receives frames. ``on(type, handler)`` before ``start()``."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._writing = threading.Lock()
        self._handlers: Dict[str, Handler] = {"reply": self._on_reply}
        self._replies: Dict[str, _Waiting] = {}
        self._later: Dict[str, Handler] = {}
        self._numbers = itertools.count(1)
        self._inlet = Inlet(fd)
        self._poll: Any = None
        self._woken: Tuple[int, int] = (-1, -1)
        """What wakes a thread that waits for something and reads meanwhile: it waits for both."""
        self._reading = threading.Lock()
        """Held by who reads."""
        self._handing = threading.Lock()
        """Held while it is decided who reads: whoever says that it waits is seen, or reads itself."""
        self._next: Any = None
        """What wakes the thread that is to read after the one that does now."""
        self._main = 0
        self._waits_for: Optional[Tuple[Arrival, Callable[[], bool]]] = None
        """What the thread waits for that would read if none did, and whether more is expected than that."""
        self._listening = False
        self._reads_for: Optional[Arrival] = None
        """The same while it reads itself."""
        self._kicks: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._left = 0
        self._parked = False
        self._rang_last = False
        on_fork(self._after_fork)

    def on(self, kind: str, handler: Handler) -> None:
        """Call ``handler`` on whichever thread reads for every frame of a type."""
        self._handlers[kind] = handler

    def start(self) -> None:
        """Have it read from now on."""
        self._woken = os.pipe()
        self._poll = self._new_poll()
        self._main = threading.get_ident()
        threading.Thread(target=self._stand_by, name="farhand-channel", daemon=True).start()

    def _new_poll(self) -> Any:
        poll = select.poll()
        for fd in (self._fd, self._woken[0]):
            poll.register(fd, select.POLLIN)
        return poll

    def read_until(self, enough: Callable[[], bool]) -> None:
        """Read in this thread until ``enough()``. Nothing may interrupt it: half a frame would be lost."""
        while not enough():
            turn = threading.Lock()
            turn.acquire()
            with self._handing:
                reads = self._reading.acquire(blocking=False)
                self._next = None if reads else turn
            if reads:
                while not enough():
                    self._read_one()
                self._reading.release()
            elif not enough():  # else it was read before anybody could see that somebody waits
                turn.acquire()
        self._next = None
        self._have_read()

    def _have_read(self) -> None:
        self._left += 1
        if self._parked:  # after the count: it looks at that after it has said so
            self._kicks.put(None)

    @uninterrupted
    def wait(self, arrival: Arrival, timeout_s: Optional[float], more: Callable[[], bool]) -> bool:
        """Wait in the main thread for an arrival, at most ``timeout_s``, and read meanwhile if nobody does.

        ``more`` says whether something else is expected, so that somebody has to read afterwards. It may be
        interrupted as any wait, but neither within a frame nor in what is done for one.
        """
        outer = self._reads_for  # there if the handler of a signal waits in the midst of another wait
        if outer is None and not self._reading.acquire(blocking=False):
            return self._wait_aside(arrival, timeout_s, more)
        self._reads_for, arrival.rouse = arrival, self._rouse
        try:
            poll = self._poll if outer is None else self._new_poll()  # the other one is in use
            return self._read_until_it_came(arrival, timeout_s, poll)
        finally:
            self._reads_for, arrival.rouse = outer, None
            if outer is None:
                self._reading.release()
                self._have_read()
                if self._replies or more():
                    self.listen()

    def _wait_aside(self, arrival: Arrival, timeout_s: Optional[float], more: Callable[[], bool]) -> bool:
        """Wait while another thread reads, which is done with that when there is nothing else to come."""
        self._waits_for = arrival, more
        if not self._listening:
            self._kicks.put(None)
        try:
            return interrupter.exposed(arrival.acquire, -1 if timeout_s is None else timeout_s)
        finally:
            self._waits_for = None

    def _read_until_it_came(self, arrival: Arrival, timeout_s: Optional[float], poll: Any) -> bool:
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while not arrival.acquire(0.0):
            header = self._frame()
            if header is not None:
                self._handle_or_end(header)
                interrupter.meet()
                continue
            rest_ms = None if until is None else max(0.0, until - time.monotonic()) * 1000
            ready = interrupter.exposed(poll.poll, rest_ms)
            if not ready:
                return arrival.acquire(0.0)
            for fd, _ in ready:
                if fd == self._fd:
                    self._read()
                else:
                    os.read(fd, _WAKES)
        return True

    def _rouse(self) -> None:
        """What is waited for has come from another thread of this process."""
        if threading.get_ident() != self._main:
            os.write(self._woken[1], b".")

    @uninterrupted
    def send(self, kind: str, /, **fields: Any) -> None:
        """Send one frame."""
        frame = (_FREQUENT.get((kind, *fields.items())) if len(fields) < _FEW else None) or pack(kind, fields)
        with self._writing:
            self._rang_last = False
            self._write(frame)
        if kind == "request" or fields.get("urgent"):
            self.listen()

    @uninterrupted
    def ring(self) -> None:
        """Have the agent look at the spool. What it has yet to read of the last such frame does as well."""
        with self._writing:
            if not (self._rang_last and self._is_unread()):
                self._rang_last = True
                self._write(_BELL)

    def _is_unread(self) -> bool:
        """Whether something that was sent has not been read, where the system tells."""
        try:
            return fcntl.ioctl(self._fd, termios.TIOCOUTQ, _NOTHING) != _NOTHING
        except OSError:
            return False

    def _write(self, frame: bytes) -> None:
        try:
            while frame:
                frame = frame[os.write(self._fd, frame) :]
        except ConnectionError:
            os._exit(_ORPHANED)

    def listen(self) -> None:
        """What was said is answered, or something comes of it, and nobody waits for that here and now."""
        if not self._listening and self._reads_for is None:
            self._kicks.put(None)

    def request(self, kind: str, args: Header) -> Any:
        """Ask the agent and wait for the body of its reply. Raises `FarhandError` with its refusal."""
        number = str(next(self._numbers))
        waiting = self._replies[number] = _Waiting()
        try:
            self.send("request", id=number, kind=kind, args=args)
            waiting.arrived.wait()
        finally:
            self._replies.pop(number, None)
        header = waiting.header
        if header.get("error"):
            raise refused(header.get("code"), str(header["error"]))
        return header.get("body")

    def request_later(self, kind: str, args: Header, arrived: Handler) -> Callable[[], None]:
        """Ask the agent; ``arrived`` gets its reply, on the thread that reads. Returns what forgets that."""
        number = str(next(self._numbers))
        self._later[number] = arrived
        self.send("request", id=number, kind=kind, args=args)

        def forget() -> None:
            self._later.pop(number, None)

        return forget

    def _on_reply(self, header: Header) -> None:
        later = self._later.pop(str(header["id"]), None)
        if later is not None:
            later(header)
            return
        waiting = self._replies.get(str(header["id"]))
        if waiting is not None:
            waiting.header = header
            waiting.arrived.set()

    def _read_one(self) -> None:
        header = self._frame()
        while header is None:
            self._read()
            header = self._frame()
        self._handle(header)

    def _read(self) -> None:
        try:
            self._inlet.read()
        except (EOFError, OSError):
            os._exit(_ORPHANED)

    def _frame(self) -> Optional[Header]:
        try:
            return self._inlet.frame()
        except ValueError:
            os._exit(_ORPHANED)

    def _handle(self, header: Header) -> None:
        handler = self._handlers.get(header.get("type", ""))
        if handler is not None:
            handler(header)

    def _handle_or_end(self, header: Header) -> None:
        """Whoever waits is not to catch what a handler raises."""
        try:
            self._handle(header)
        except BaseException:  # noqa: BLE001 - SystemExit too
            _end_deaf()

    def _stand_by(self) -> None:
        try:
            self._look_after_it()
        except BaseException:  # noqa: BLE001 - what a handler raises, SystemExit too
            _end_deaf()

    def _look_after_it(self) -> None:
        left, looks = 0, 0
        while True:
            if looks > _LOOKS_MAX:
                self._park(left)
                looks = 0
            with suppress(queue.Empty):
                self._kicks.get(timeout=LOOK_S)
            left, looks = self._left, looks + 1 if self._left == left else 0
            if self._reading.acquire(blocking=False):
                self._read_on()

    def _park(self, left: int) -> None:
        """Look no more before another job begins than those that were counted."""
        self._parked = True
        if self._left == left:
            self._kicks.get()
        self._parked = False

    def _read_on(self) -> None:
        """Read until another thread does, or soon will."""
        while not self._is_relieved():
            self._listening = True
            while not self._is_relieved():
                self._read_one()
            self._listening = False  # whoever waits from now on says so, or was seen
        with self._handing:
            turn, self._next = self._next, None
            self._reading.release()
        if turn is not None:
            turn.release()

    def _is_relieved(self) -> bool:
        waits_for = self._waits_for
        if waits_for is None:
            return self._next is not None
        arrival, more = waits_for
        return arrival.came and not more()

    def _after_fork(self) -> None:
        self._writing = threading.Lock()
        for fd in (self._fd, *self._woken):
            if fd >= 0:
                os.close(fd)


def _end_deaf() -> None:
    os.write(2, traceback.format_exc().encode(errors="replace"))
    os._exit(_DEAF)


class _Waiting:
    """A request on its way."""

    __slots__ = ("arrived", "header")

    def __init__(self) -> None:
        self.arrived = threading.Event()
        self.header: Header = {}
