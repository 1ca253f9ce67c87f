"""A peer that speaks the protocol by hand, frame by frame, so that a test can break it at any point."""

from __future__ import annotations

import contextlib
import json
import secrets
import struct
from collections.abc import Iterator
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

PATIENCE_S = 60.0

STARTED = ["started", {"at": 1.0, "pid": 1, "python": "3.11", "host": "peer"}]
COMPLETED = ["result", {"state": "completed", "at": 2.0, "value": {"enc": "json", "text": '"forged"'}}]


class Peer:
    """One session with a real server over a real socket. Nothing is answered by itself."""

    def __init__(self, link: ClientConnection, name: str) -> None:
        self._link = link
        self.name = name

    def say(self, **message: Any) -> None:
        """Send one message."""
        self._link.send(json.dumps(message))

    def say_raw(self, frame: str | bytes, text: bool | None = None) -> None:
        """Send a frame of any content; bytes are binary, unless they are to pass for ``text``."""
        self._link.send(frame, text)

    def announce(self, size_bytes: int) -> None:
        """Send the head of a frame of that size, and nothing of its body."""
        text_to_its_end, masked_with_a_long_size = 0x81, 0xFF
        head = struct.pack("!BBQ4x", text_to_its_end, masked_with_a_long_size, size_bytes)
        self._link.socket.sendall(head)

    def takes(self, body: bytes) -> bool:
        """Whether the connection carries all of this."""
        try:
            self._link.socket.sendall(body)
        except OSError:
            return False
        return True

    def greet(self, **more: Any) -> None:
        """A hello like a worker's, and the welcome to it."""
        self.say(**self.hello(**more))
        self.hear("welcome")

    def hello(self, **more: Any) -> dict[str, Any]:
        """The hello of an instance of its own."""
        who = {"name": self.name, "instance": secrets.token_hex(8), "boot_id": "b", "host": "peer"}
        what = {"version": "0", "python": "3.11.0", "parallel": 1, "protocol": [1, 1]}
        return {"type": "hello", **who, **what, "held": [], **more}

    def report(self, job: str, lease: int, *events: Any, first: int = 1) -> None:
        """A batch of an engine's events."""
        self.say(type="event", job=job, lease=lease, source="engine", first=first, events=events)

    def hear(self, kind: str, /, **fields: Any) -> dict[str, Any]:
        """The next message of a type with these fields; the others are passed over."""
        while True:
            message = json.loads(self._link.recv(PATIENCE_S))
            if message["type"] == kind and fields.items() <= message.items():
                return message

    def heard(self, within_s: float) -> dict[str, Any] | None:
        """The next message, if one comes in time."""
        try:
            return json.loads(self._link.recv(within_s))
        except TimeoutError:
            return None

    def closed(self) -> tuple[int, str]:
        """The code and the reason with which the server closes."""
        try:
            while True:
                self._link.recv(PATIENCE_S)
        except ConnectionClosed as error:
            if error.rcvd is None:
                raise
            return error.rcvd.code, error.rcvd.reason


@contextlib.contextmanager
def dialled(url: str, token: str, name: str) -> Iterator[Peer]:
    """A connection that a worker's token opens."""
    address = "ws" + url.removeprefix("http") + "/api/v1/workers/attach"
    headers = {"Authorization": f"Bearer {token}"}
    with connect(
        address, additional_headers=headers, compression=None, max_size=None, proxy=None, close_timeout=1
    ) as link:
        yield Peer(link, name)
