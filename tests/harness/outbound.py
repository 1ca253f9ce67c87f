"""A proxy as companies have one: connections lead out through it alone, by CONNECT."""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass, field


@dataclass
class OutboundProxy:
    """Leads every CONNECT to this machine, whatever host it names. ``asked`` are the requests it had."""

    credentials: str = ""
    status: int = 200
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        """As an environment names it."""
        return f"http://{self.address}"

    def refuse(self) -> None:
        """Listen no more; what is open goes on."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def close(self) -> None:
        """Listen no more, and wait until what was led through has ended: whoever dialled is gone by now."""
        if self._listener.fileno() >= 0:
            self.refuse()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                visitor, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._serve, args=(visitor,), daemon=True))
            self._threads[-1].start()

    def _serve(self, visitor: socket.socket) -> None:
        with visitor:
            head = _head(visitor)
            if not head:
                return
            self.asked.append(head)
            status = 407 if self.credentials not in head else self.status
            visitor.sendall(f"HTTP/1.1 {status} said\r\n\r\n".encode())
            if status == 200:
                port = int(head.split(" ")[1].rpartition(":")[2])
                with socket.create_connection(("127.0.0.1", port)) as server:
                    _carry_both_ways(visitor, server)


def _head(visitor: socket.socket) -> str:
    head = b""
    while b"\r\n\r\n" not in head:
        piece = visitor.recv(4096)
        if not piece:
            return ""
        head += piece
    return head.decode()


def _carry_both_ways(one: socket.socket, other: socket.socket) -> None:
    back = threading.Thread(target=_carry, args=(other, one), daemon=True)
    back.start()
    _carry(one, other)
    back.join()


def _carry(source: socket.socket, sink: socket.socket) -> None:
    try:
        while piece := source.recv(65536):
            sink.sendall(piece)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        return  # either end is gone, and the other hears of it
