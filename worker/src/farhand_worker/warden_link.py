"""The agent's handle of its warden: talks to it, and notices when it is silent or gone."""

from __future__ import annotations

import array
import asyncio
import json
import os
import signal
import socket
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

from . import trees
from .warden_process import Start, WardenProcess, order_text

_SETTLE_S = 5.0
_LOOKS = 4
"""So often it is looked within a margin whether the warden has answered."""


class WardenLink:
    """One warden process. ``on_message`` gets what it reports, ``on_end`` (why) is called once."""

    def __init__(
        self,
        process: WardenProcess,
        on_message: Callable[[Dict[str, Any]], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._process = process
        self._socket = process.socket
        self._on_message = on_message
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._incoming = b""
        self._outgoing: Deque[Tuple[bytes, List[int]]] = deque()
        self._number = 0
        self._answered = 0
        self._awaited = 0
        """The answer that is waited for, 0 for none."""
        self._looks = 0
        self._ended = False
        self.margin_s = 3.0
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket, self._read)

    @property
    def pid(self) -> int:
        """The warden's process id."""
        return self._process.pid

    # ------------------------------------------------------------ orders

    def spawn(self, start: Start, strict: bool, fds: List[int], stem: str = "") -> None:
        """Start an engine on the descriptors (channel, output), which are closed here.

        It is forked from ``stem`` if that lives and takes the order.
        """
        self._order(order_text("spawn", **start._asdict(), strict=strict, stem=stem), fds)

    def stem(self, start: Start, output: int) -> None:
        """Start a stem that writes to the descriptor, which is closed here."""
        self._order(order_text("stem", **start._asdict()), [output])

    def say(self, stem: str, line: str) -> None:
        """Have a stem read a line."""
        self._order(order_text("say", engine=stem, line=line))

    def deadlines(self, ordinary: float, strict: float) -> None:
        """Move the deadlines; the warden must answer within ``margin_s`` or is killed.

        Time in which this process itself stands still does not count: the warden may have as well.
        """
        self._number += 1
        self._order(order_text("deadlines", ordinary=ordinary, strict=strict, n=self._number))
        if not self._awaited:
            self._await(self._number)

    def kill(self, engine: str) -> None:
        """Kill an engine's whole tree."""
        self._order(order_text("kill", engine=engine))

    def terminate(self, engine: str) -> None:
        """Send SIGTERM to an engine's process group."""
        self._order(order_text("signal", engine=engine, signal=int(signal.SIGTERM)))

    def close(self) -> None:
        """End the warden, which ends all engines."""
        if not self._ended:
            self._ended = True
            self._let_go()
            self._process.close()

    # ------------------------------------------------------------ the socket

    def _order(self, text: bytes, fds: Optional[List[int]] = None) -> None:
        if self._ended:
            for fd in fds or []:
                os.close(fd)
            return
        self._outgoing.append((text, fds or []))
        self._write()

    def _write(self) -> None:
        while self._outgoing:
            text, fds = self._outgoing.popleft()
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
            try:
                sent = self._socket.sendmsg([text], rights)
            except BlockingIOError:
                self._outgoing.appendleft((text, fds))
                self._loop.add_writer(self._socket, self._write)
                return
            except OSError:
                self._outgoing.appendleft((text, fds))
                self._loop.call_soon(self._end, "the warden ended")
                return
            for fd in fds:
                os.close(fd)
            if sent < len(text):
                self._outgoing.appendleft((text[sent:], []))
        self._loop.remove_writer(self._socket)

    def _read(self) -> None:
        try:
            chunk = self._socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self._end("the warden ended")
            return
        *lines, self._incoming = (self._incoming + chunk).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if message["is"] == "pong":
                self._answered = message["n"]
            else:
                self._on_message(message)

    def _await(self, number: int) -> None:
        self._awaited, self._looks = number, _LOOKS
        self._look_later()

    def _look_later(self) -> None:
        between_s = self.margin_s / _LOOKS
        self._loop.call_later(between_s, self._look, self._loop.time() + 2 * between_s)

    def _look(self, late_at: float) -> None:
        """Whether it has answered; a look that comes late says nothing of the warden."""
        if self._answered < self._awaited:
            self._read()
        if self._ended:
            return
        if self._answered >= self._awaited:
            self._awaited = 0
            if self._answered < self._number:
                self._await(self._number)
            return
        self._looks -= self._loop.time() < late_at
        if self._looks:
            self._look_later()
        else:
            self._end("the warden did not answer")

    def _end(self, why: str) -> None:
        if self._ended:
            return
        self._ended = True
        self._let_go()
        self._process.kill()
        self._on_end(why)

    def _let_go(self) -> None:
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        for _, fds in self._outgoing:
            for fd in fds:
                os.close(fd)
        self._outgoing.clear()


async def kill_inherited(spared: set[int]) -> None:
    """Kill and collect what fell to this process when its warden died; ``spared`` are its own children."""
    loop = asyncio.get_running_loop()
    until = loop.time() + _SETTLE_S
    while loop.time() < until:
        inherited = trees.children_of(os.getpid()) - spared
        if not inherited:
            return
        trees.kill_trees(inherited)
        for pid in inherited:
            trees.collect(pid)
        await asyncio.sleep(0.002)
