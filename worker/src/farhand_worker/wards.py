"""What a warden watches over: engines, and stems with the engines that were asked of them.

Standard library: part of the warden's process.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any, Dict, List, Optional


class Child:
    """One engine: its process, the deadline it obeys, and why it was killed, if it was."""

    def __init__(self, engine: str, pid: int, strict: bool) -> None:
        self.engine = engine
        self.pid = pid
        self.strict = strict
        self.killed: Optional[str] = None


class Stem(Child):
    """A process that engines are forked from: its socket, and the orders it has not told of yet."""

    def __init__(self, engine: str, pid: int, link: socket.socket, env: Dict[str, str]) -> None:
        super().__init__(engine, pid, strict=False)
        link.setblocking(False)
        self._link = link
        self._env = env
        self._incoming = b""
        self.open = True
        self.asked: Dict[str, Order] = {}

    def fileno(self) -> int:
        """For the poll."""
        return self._link.fileno()

    def ask(self, order: Order) -> bool:
        """Pass an order on, whose descriptors stay open here; False when the stem does not take it."""
        message, env = order.message, order.message["env"]
        changes = {
            name: env.get(name) for name in {**self._env, **env} if env.get(name) != self._env.get(name)
        }
        wanted = {"engine": message["engine"], "cwd": message["cwd"], "env": changes}
        if not self.say(json.dumps(wanted), order.channel, order.output):
            return False
        self.asked[message["engine"]] = order
        return True

    def say(self, line: str, *fds: int) -> bool:
        """Write a line, with copies of descriptors; False when the stem does not take it."""
        text = line.encode() + b"\n"
        try:
            return socket.send_fds(self._link, [text], fds) == len(text)
        except OSError:
            return False

    def said(self) -> List[Dict[str, Any]]:
        """What it has told since."""
        lines: List[bytes] = []
        while self.open:
            try:
                text = self._link.recv(65536)
            except BlockingIOError:
                break
            except ConnectionError:
                text = b""
            self.open = bool(text)
            *more, self._incoming = (self._incoming + text).split(b"\n")
            lines += more
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Let go of the socket."""
        self.open = False
        self._link.close()


class Order:
    """An engine that a stem was asked for: how to start it otherwise, and why it was killed, if it was."""

    def __init__(self, message: Dict[str, Any], channel: int, output: int) -> None:
        self.message = message
        self.channel = channel
        self.output = output
        self.killed: Optional[str] = None

    def close(self) -> None:
        """Close the descriptors: the engine has its own."""
        os.close(self.channel)
        os.close(self.output)
