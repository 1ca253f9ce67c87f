"""The engine's end of the socket to its agent.

A frame is four bytes of length, big-endian, and a JSON header of that length; a header with ``body: n``
is followed by n raw bytes. One thread reads; any thread writes.

At the end of the file the agent is gone, and with it every right to go on: the process exits at once.
"""

from __future__ import annotations

import itertools
import os
import struct
import threading
from typing import Any, Callable, Dict, Optional

from farhand.errors import Conflict, FarhandError, Forbidden, NotFound

from . import compact
from .events import dumps
from .forks import on_fork
from .interrupts import uninterrupted

Header = Dict[str, Any]
Handler = Callable[[Header], None]

_LENGTH = struct.Struct(">I")
_REFUSALS = {cls.code: cls for cls in (Conflict, Forbidden, NotFound)}
_ORPHANED = 75
"""The exit code of an engine whose agent is gone."""


def pack(kind: str, fields: Header) -> bytes:
    """One frame."""
    header = dumps({"type": kind, **fields}).encode("ascii")
    return _LENGTH.pack(len(header)) + header


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
        on_fork(self._after_fork)

    def on(self, kind: str, handler: Handler) -> None:
        """Call ``handler`` on the reading thread for every frame of a type."""
        self._handlers[kind] = handler

    def start(self) -> None:
        """Begin to read."""
        threading.Thread(target=self._read, name="farhand-channel", daemon=True).start()

    @uninterrupted
    def send(self, kind: str, /, **fields: Any) -> None:
        """Send one frame."""
        frame = (_FREQUENT.get((kind, *fields.items())) if len(fields) < _FEW else None) or pack(kind, fields)
        with self._writing:
            while frame:
                frame = frame[os.write(self._fd, frame) :]

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
        """Ask the agent; ``arrived`` gets its reply, on the reading thread. Returns what forgets that."""
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

    def _read(self) -> None:
        stream = open(self._fd, "rb", closefd=False)  # noqa: SIM115 - it ends with the process
        while True:
            header = read_frame(stream)
            if header is None:
                os._exit(_ORPHANED)
            handler = self._handlers.get(header.get("type", ""))
            if handler is not None:
                handler(header)

    def _after_fork(self) -> None:
        self._writing = threading.Lock()
        os.close(self._fd)


class _Waiting:
    """A request on its way."""

    __slots__ = ("arrived", "header")

    def __init__(self) -> None:
        self.arrived = threading.Event()
        self.header: Header = {}


def read_frame(stream: Any) -> Optional[Header]:
    """The next frame's header (with ``content`` for its body), or None at the end of the file."""
    try:
        prefix = stream.read(_LENGTH.size)
        if len(prefix) < _LENGTH.size:
            return None
        text = stream.read(_LENGTH.unpack(prefix)[0])
        header: Header = compact.parsed(text.decode())
        if "body" in header and isinstance(header["body"], int):
            header["content"] = stream.read(header["body"])
        return header
    except (OSError, ValueError):
        return None
