"""The warden: the one process that starts engines and the one that kills them.

It is a child of the agent, single-threaded, and loads the standard library, itself and four small modules
(`wards`, `forking`, `alarm`, `trees`), so that it stays small and has nothing to get stuck in. The agent
talks to it over a unix socket, one JSON object a line; descriptors for a new engine ride along.

What it guarantees
------------------
- Every engine has a deadline on the clock that counts sleep. The agent moves it at each renewal of its
  lease; when it passes, or when the agent's end of the socket closes, the engine's whole tree is killed
  without grace. So it does not matter what becomes of the agent, frozen or dead.
- An engine is its own session, dies with the warden (parent death signal) and adopts the orphans of its
  descendants (subreaper). The warden adopts the orphans of dead engines, and kills them at once.
- An engine may be forked from a stem, a process that has loaded what all engines load. A process between
  the two tells the warden of the engine and ends, upon which the engine is the warden's child like any
  other. What a stem has not told of when it ends is started without it.
- A kill stops the tree from the top until no new process appears, then kills all of it. What called
  setsid or ignores SIGTERM is no exception.

Agent → warden: ``spawn {engine, argv, env, cwd, strict, stem?}`` with two descriptors (channel, output),
``stem {engine, argv, env, cwd}`` with one (output), ``say {engine, line}`` to a stem,
``deadlines {ordinary, strict, n}``, ``kill {engine}``, ``signal {engine, signal}``.
Warden → agent: ``spawned {engine, pid, forked}``, ``exited {engine, code | signal, killed}``, ``pong {n}``.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from .alarm import CLOCK, alarm, set_alarm
from .forking import fork
from .trees import become_subreaper, collect, kill_trees, own_children
from .wards import Child, Order, Stem

_SETTLE_S = 0.5


class Warden:
    """Waits for the agent, the clock and its children, in one thread and one poll."""

    def __init__(self, control: socket.socket) -> None:
        control.setblocking(False)
        self._control = control
        self._incoming = b""
        self._outgoing = b""
        self._fds: List[int] = []
        self._children: Dict[int, Child] = {}
        self._dying: List[Stem] = []
        self._ordinary = self._strict = 0.0
        self._agent_gone = False
        self._timer = alarm()
        self._wake, wake = socket.socketpair()
        self._wake.setblocking(False)
        wake.setblocking(False)
        self._wake_writer = wake
        signal.signal(signal.SIGCHLD, _wake_up)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        self._handlers: Dict[str, Callable[[Dict[str, Any]], None]] = {
            "spawn": self._spawn,
            "stem": self._start_stem,
            "say": self._say,
            "deadlines": self._deadlines,
            "kill": self._kill,
            "signal": self._signal,
        }

    def run(self) -> None:
        """Serve until the agent's end closes; then nothing it had started is left."""
        while not self._agent_gone:
            self._wait()
            self._enforce()
            self._reap()
            self._bury_stems()
        self._end_all()

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._control, select.POLLIN | (select.POLLOUT if self._outgoing else 0))
        poll.register(self._wake, select.POLLIN)
        if self._timer is not None:
            poll.register(self._timer, select.POLLIN)
        for stem in self._stems():
            if stem.open:
                poll.register(stem, select.POLLIN)
        for fd, events in poll.poll(self._poll_ms()):
            if fd == self._control.fileno():
                if events & select.POLLOUT:
                    self._flush()
                if events & ~select.POLLOUT:
                    self._receive()
            elif fd == self._wake.fileno():
                _drain(self._wake)
            elif fd == self._timer:
                with contextlib.suppress(BlockingIOError):  # an order that came with it has set it anew
                    os.read(fd, 8)
            else:
                self._hear_stems()

    def _poll_ms(self) -> Optional[float]:
        following = self._next_deadline()
        if self._timer is not None or following is None:
            return None
        return max(0.0, following - time.clock_gettime(CLOCK)) * 1000 + 1

    # ------------------------------------------------------------ what the agent asks for

    def _receive(self) -> None:
        try:
            text, fds, _, _ = socket.recv_fds(self._control, 65536, 64)
        except BlockingIOError:
            return
        except ConnectionError:
            text, fds = b"", []
        for fd in fds:
            os.set_inheritable(fd, False)  # by a flag, recv_fds does not do it
        self._fds.extend(fds)
        if not text:
            self._agent_gone = True
            return
        *lines, self._incoming = (self._incoming + text).split(b"\n")
        for line in lines:
            message = json.loads(line)
            self._handlers[message["do"]](message)

    def _spawn(self, message: Dict[str, Any]) -> None:
        order = Order(message, self._fds.pop(0), self._fds.pop(0))
        for stem in self._stems():
            if stem.engine == message.get("stem") and stem.killed is None:
                if stem.ask(order):
                    return
                self._kill_children([stem], "asked")  # it takes no orders
        self._start(order)

    def _start(self, order: Order) -> None:
        """Start an engine without a stem."""
        message = order.message
        engine, strict = message["engine"], bool(message["strict"])
        try:
            if order.killed is not None or self._is_late(strict):
                killed = order.killed or "deadline"
                self._tell({"is": "exited", "engine": engine, "signal": 9, "killed": killed})
                return
            pid = fork(message, order.channel, order.output)
            self._children[pid] = Child(engine, pid, strict)
            self._arm()
            self._tell({"is": "spawned", "engine": engine, "pid": pid, "forked": False})
        except OSError as error:
            self._tell_failure(engine, str(error))
        finally:
            order.close()

    def _is_late(self, strict: bool) -> bool:
        return time.clock_gettime(CLOCK) >= (self._strict if strict else self._ordinary)

    # ------------------------------------------------------------ stems

    def _stems(self) -> List[Stem]:
        return self._dying + [child for child in self._children.values() if isinstance(child, Stem)]

    def _start_stem(self, message: Dict[str, Any]) -> None:
        output, engine = self._fds.pop(0), message["engine"]
        link, theirs = socket.socketpair()
        try:
            pid = fork(message, theirs.fileno(), output, adopts=False)
            self._children[pid] = Stem(engine, pid, link, message["env"])
            self._tell({"is": "spawned", "engine": engine, "pid": pid, "forked": False})
        except OSError as error:
            link.close()
            self._tell_failure(engine, str(error))
        finally:
            theirs.close()
            os.close(output)

    def _say(self, message: Dict[str, Any]) -> None:
        for stem in self._stems():
            if stem.engine == message["engine"] and not stem.say(message["line"]):
                self._kill_children([stem], "asked")  # it does not read

    def _hear_stems(self) -> None:
        for stem in self._stems():
            for message in stem.said():
                order = stem.asked.pop(message["engine"])
                order.close()
                self._adopt(order, message)

    def _adopt(self, order: Order, message: Dict[str, Any]) -> None:
        """An engine was forked, or could not be. It waits until its parent ends: it has done nothing yet."""
        engine, strict = message["engine"], bool(order.message["strict"])
        if "pid" not in message:
            self._tell_failure(engine, message["error"])
            return
        child = self._children[message["pid"]] = Child(engine, message["pid"], strict)
        self._tell({"is": "spawned", "engine": engine, "pid": child.pid, "forked": True})
        if order.killed is not None or self._is_late(strict):
            self._kill_children([child], order.killed or "deadline")
        self._arm()

    def _is_of_stem(self, pid: int) -> bool:
        """Whether a child is what a dead stem has begun: it goes on, or ends by itself."""
        try:
            return any(os.getsid(pid) == stem.pid for stem in self._dying)
        except ProcessLookupError:
            return False

    def _bury_stems(self) -> None:
        """Start what a dead stem has not told of, once nobody is left who could tell of it."""
        for stem in [stem for stem in self._dying if not stem.open]:
            self._dying.remove(stem)
            stem.close()
            for order in stem.asked.values():
                self._start(order)

    # ------------------------------------------------------------ kills and deadlines

    def _deadlines(self, message: Dict[str, Any]) -> None:
        self._enforce()  # a deadline that has passed is not moved any more
        self._ordinary, self._strict = message["ordinary"], message["strict"]
        self._arm()
        self._tell({"is": "pong", "n": message["n"]})

    def _kill(self, message: Dict[str, Any]) -> None:
        for stem in self._stems():
            if message["engine"] in stem.asked:
                stem.asked[message["engine"]].killed = "asked"
                if stem in self._dying:  # its child does not end, as if it were frozen
                    kill_trees({pid for pid in own_children() if self._is_of_stem(pid)})
        self._kill_children([c for c in self._children.values() if c.engine == message["engine"]], "asked")

    def _signal(self, message: Dict[str, Any]) -> None:
        for child in self._children.values():
            if child.engine == message["engine"]:
                # It may be ending, or not in its own group yet.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, message["signal"])

    # ------------------------------------------------------------ what the clock asks for

    def _next_deadline(self) -> Optional[float]:
        return min((self._deadline(child) for child in self._bound()), default=None)

    def _bound(self) -> List[Child]:
        """What has to end at a deadline: a stem runs nothing of anybody."""
        return [c for c in self._children.values() if c.killed is None and not isinstance(c, Stem)]

    def _deadline(self, child: Child) -> float:
        return self._strict if child.strict else self._ordinary

    def _arm(self) -> None:
        if self._timer is None:
            return
        following = self._next_deadline() or 0.0  # zero disarms
        set_alarm(self._timer, following)

    def _enforce(self) -> None:
        now = time.clock_gettime(CLOCK)
        self._kill_children([child for child in self._bound() if self._deadline(child) <= now], "deadline")

    def _kill_children(self, children: List[Child], why: str) -> None:
        if not children:
            return
        for child in children:
            child.killed = child.killed or why
        kill_trees([child.pid for child in children])
        self._arm()

    # ------------------------------------------------------------ what has ended

    def _reap(self) -> None:
        statuses = list(iter(_ended, None))
        if statuses:
            self._hear_stems()  # an engine is told of before it can end here
        ended = [(self._children.pop(pid), status) for pid, status in statuses if pid in self._children]
        self._dying += [child for child, _ in ended if isinstance(child, Stem)]
        if not ended:
            return
        self._kill_orphans()  # before saying so: what an engine started ends with it
        self._arm()
        for child, status in ended:
            self._tell({"is": "exited", "engine": child.engine, "killed": child.killed, **_end(status)})

    def _kill_orphans(self) -> None:
        killed: Set[int] = set()
        while True:
            found = own_children()
            self._hear_stems()  # whoever a stem has forked was told of before it came here
            fresh = {pid for pid in found - set(self._children) - killed if not self._is_of_stem(pid)}
            if not fresh:
                break
            killed |= kill_trees(fresh)
        until = time.monotonic() + _SETTLE_S
        while killed and time.monotonic() < until:
            killed = {pid for pid in killed if not collect(pid)}
            if killed:
                time.sleep(0.001)

    def _end_all(self) -> None:
        kill_trees(self._children)
        until = time.monotonic() + 5
        while time.monotonic() < until:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                kill_trees(own_children())
                time.sleep(0.002)

    # ------------------------------------------------------------ answers

    def _tell_failure(self, engine: str, error: str) -> None:
        self._tell({"is": "exited", "engine": engine, "code": 127, "killed": None, "error": error})

    def _tell(self, message: Dict[str, Any]) -> None:
        self._outgoing += json.dumps(message).encode() + b"\n"
        self._flush()

    def _flush(self) -> None:
        """Send what the socket takes. Never waits: a stopped agent must not stop its warden."""
        try:
            sent = self._control.send(self._outgoing)
        except BlockingIOError:
            return
        except ConnectionError:
            self._agent_gone = True
            return
        self._outgoing = self._outgoing[sent:]


def _wake_up(number: int, frame: object) -> None:
    """Does nothing: that the signal came is what the wake-up descriptor says."""


def _ended() -> Optional[Tuple[int, int]]:
    """A child that has ended and how, if there is one."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, status) if pid else None


def _end(status: int) -> Dict[str, int]:
    if os.WIFSIGNALED(status):
        return {"signal": os.WTERMSIG(status)}
    return {"code": os.WEXITSTATUS(status)}


def _drain(source: socket.socket) -> None:
    try:
        while source.recv(4096):
            pass
    except BlockingIOError:
        pass


def main(arguments: List[str]) -> None:
    """Run as the agent's child, with the control socket at ``--fd``."""
    control = socket.socket(fileno=int(arguments[arguments.index("--fd") + 1]))
    control.set_inheritable(False)
    become_subreaper()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)  # it ends with its agent and not before
    Warden(control).run()
