"""A TCP proxy between a worker and its server that knows websocket frames: it cuts links and loses messages.

It forwards bytes; once a connection has been upgraded it forwards whole frames, so that one message can be
swallowed without breaking the stream. While the link is `cut`, nothing passes in either direction and new
connections are accepted and left unanswered, as on a network that drops packets.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

Filter = Callable[[dict[str, Any]], bool]

TO_SERVER = "to server"
TO_WORKER = "to worker"


class Proxy:
    """Listens on a free loopback port and forwards to ``port``.

    ``buffer_bytes`` is about what it holds on the way: a slow link does not swallow megabytes. What passes in
    one direction shares ``bytes_per_s``, whichever connection it is of.
    """

    def __init__(self, port: int, buffer_bytes: int | None = None) -> None:
        self._target = ("127.0.0.1", port)
        self._buffer_bytes = buffer_bytes
        self._listener = socket.socket()
        self._bound(self._listener)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(64)
        self.port: int = self._listener.getsockname()[1]
        self._open = {TO_SERVER: threading.Event(), TO_WORKER: threading.Event()}
        self.heal(reset=False)
        self.bytes_per_s: float | None = None
        self._turn = {TO_SERVER: threading.Lock(), TO_WORKER: threading.Lock()}
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._filters: dict[str, list[Filter]] = {TO_SERVER: [], TO_WORKER: []}
        self.forwarded = {TO_SERVER: 0, TO_WORKER: 0}
        self.swallowed: list[dict[str, Any]] = []
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """Where the worker dials."""
        return f"http://127.0.0.1:{self.port}"

    def cut(self, *directions: str) -> None:
        """Let nothing through, silently; in one direction when that is given."""
        for direction in directions or self._open:
            self._open[direction].clear()

    def heal(self, reset: bool = True) -> None:
        """Let everything through again; with ``reset`` the connections of before are gone."""
        if reset:
            self.reset()
        for gate in self._open.values():
            gate.set()

    def reset(self) -> None:
        """Break every connection with an RST."""
        with self._lock:
            sockets, self._sockets = self._sockets, set()
        for connection in sockets:
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def swallow(self, direction: str, wanted: Filter, times: int = 1) -> None:
        """Lose the next ``times`` messages in ``direction`` that ``wanted`` accepts."""
        left = [times]

        def take(message: dict[str, Any]) -> bool:
            if left[0] > 0 and wanted(message):
                left[0] -= 1
                self.swallowed.append(message)
                return True
            return False

        self._filters[direction].append(take)

    def deliver_all(self) -> None:
        """Lose nothing from now on."""
        for filters in self._filters.values():
            filters.clear()

    def close(self) -> None:
        """End every connection and listen no more."""
        self._closed = True
        self.heal(reset=False)
        self._listener.close()
        self.reset()

    def _accept(self) -> None:
        while not self._closed:
            try:
                worker, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(worker,), daemon=True).start()

    def _connect(self, worker: socket.socket) -> None:
        for gate in self._open.values():
            gate.wait()
        server = socket.socket()
        self._bound(server)
        server.settimeout(5)
        try:
            server.connect(self._target)
        except OSError:
            server.close()
            worker.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            worker.close()
            return
        server.settimeout(None)
        for connection in (worker, server):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._sockets |= {worker, server}
        if self._closed:  # meanwhile: it may have waited for the link to be healed
            self.reset()
            return
        for source, sink, direction in ((worker, server, TO_SERVER), (server, worker, TO_WORKER)):
            pump = threading.Thread(target=self._pump, args=(source, sink, direction), daemon=True)
            pump.start()

    def _bound(self, connection: socket.socket) -> None:
        if self._buffer_bytes is not None:
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                connection.setsockopt(socket.SOL_SOCKET, option, self._buffer_bytes)

    def _pump(self, source: socket.socket, sink: socket.socket, direction: str) -> None:
        frames = _Frames()
        try:
            while chunk := source.recv(65536):
                kept = b"".join(
                    frame for frame, message in frames.feed(chunk) if not self._loses(direction, message)
                )
                self._open[direction].wait()
                if kept and self.bytes_per_s:
                    with self._turn[direction]:
                        time.sleep(len(kept) / self.bytes_per_s)
                if kept:
                    sink.sendall(kept)
                    self.forwarded[direction] += len(kept)
        except OSError:
            pass
        finally:
            for connection in (source, sink):
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _loses(self, direction: str, message: dict[str, Any] | None) -> bool:
        if message is None:
            return False
        self.seen.append((direction, message))
        return any(wanted(message) for wanted in self._filters[direction])


class _Frames:
    """Cuts one direction of a connection into pieces: the HTTP head, then websocket frames (RFC 6455)."""

    def __init__(self) -> None:
        self._buffer = b""
        self._upgraded = False
        self._plain = False

    def feed(self, chunk: bytes) -> list[tuple[bytes, dict[str, Any] | None]]:
        """The pieces that are complete, each with the JSON message it carries, if it does."""
        if self._plain:
            return [(chunk, None)]
        self._buffer += chunk
        if not self._upgraded:
            return self._feed_head()
        return self._feed_frames()

    def _feed_head(self) -> list[tuple[bytes, dict[str, Any] | None]]:
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        if not end:
            return []
        if b"upgrade: websocket" not in head.lower():
            self._plain = True
            whole, self._buffer = self._buffer, b""
            return [(whole, None)]
        self._upgraded = True
        self._buffer = rest
        return [(head + end, None), *self._feed_frames()]

    def _feed_frames(self) -> list[tuple[bytes, dict[str, Any] | None]]:
        pieces: list[tuple[bytes, dict[str, Any] | None]] = []
        while (frame := self._take_frame()) is not None:
            pieces.append(frame)
        return pieces

    def _take_frame(self) -> tuple[bytes, dict[str, Any] | None] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        size, start = buffer[1] & 0x7F, 2
        if size == 126:
            if len(buffer) < 4:
                return None
            size, start = struct.unpack_from("!H", buffer, 2)[0], 4
        elif size == 127:
            if len(buffer) < 10:
                return None
            size, start = struct.unpack_from("!Q", buffer, 2)[0], 10
        masked = bool(buffer[1] & 0x80)
        end = start + (4 if masked else 0) + size
        if len(buffer) < end:
            return None
        self._buffer = buffer[end:]
        payload = buffer[end - size : end]
        if masked:
            payload = _unmask(payload, buffer[start : start + 4])
        return buffer[:end], _message(buffer[0], payload)


def _unmask(payload: bytes, mask: bytes) -> bytes:
    repeated = (mask * (len(payload) // 4 + 1))[: len(payload)]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")).to_bytes(len(payload), "big")


def _message(first_byte: int, payload: bytes) -> dict[str, Any] | None:
    if first_byte != 0x81:
        return None
    try:
        message = json.loads(payload)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None
