"""The agent: dials the server, beats, and decides from what it hears how long engines may run."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import shutil
import socket
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Callable, Coroutine, Optional, Set, Tuple

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from . import __version__
from .address import Address, BadAddress
from .cache import Cache, NotFetched
from .clock import lease_now
from .dial import DialRefused, NotConnected, dial
from .engines import Pool
from .environment import user_environment
from .evidence import Evidence
from .holdings import Holdings
from .protocol import (
    SUPPORTED,
    Ack,
    Bye,
    Hello,
    Inventory,
    ProtocolViolation,
    Refused,
    Times,
    Welcome,
    decode,
    encode,
)
from .session import Session, SessionOver
from .state import StateDirectory
from .transfer import Transfer
from .warden_link import WardenLink, kill_inherited

STOPPED, REFUSED = 0, 3
"""Exit codes: ended in order; refused for good."""

_RETRY_S, _RETRY_S_MAX = 0.5, 5.0
_OPEN_S = 10.0
_SECOND_SIGNAL_S = 0.05
_log = logging.getLogger("farhand.worker")


@dataclass(frozen=True)
class Options:
    """What the command line decides. ``address`` is asked before every dial."""

    address: Callable[[], Address]
    token: str
    name: str
    parallel: int = 1
    python: str = ""
    python_version: str = ""
    cwd: Optional[Path] = None
    orphan_s: Optional[float] = None
    inventory: Inventory = field(default_factory=Inventory)
    pin: Optional[str] = None


class Agent:
    """One agent's life on one state directory. `run` returns the exit code."""

    def __init__(self, options: Options, state: StateDirectory) -> None:
        self._options = options
        self._state = state
        self._loop = asyncio.get_running_loop()
        self._end: asyncio.Future[int] = self._loop.create_future()
        self._environ, self._withheld = user_environment(os.environ)
        self._transfer = Transfer(options.token, pin=options.pin)
        self._cache = Cache(state, self._transfer, options.python)
        self._pool = Pool(state, options.python, self._environ, max(1, options.parallel))
        self._holdings = Holdings(
            state, self._cache, self._pool, options.cwd, self._leave_if_done, self._background
        )
        self._evidence = Evidence(self._holdings.times)
        self._tasks: Set[asyncio.Task[Any]] = set()
        self._warden: Optional[WardenLink] = None
        self._session: Optional[Session] = None
        self._session_key: Optional[str] = None
        self._incarnation: Optional[str] = None
        self._swept: Optional[str] = None
        self._failures = 0
        self._signals = 0
        self._leaving = False
        self._watch: Optional[asyncio.TimerHandle] = None
        self._orphan: Optional[asyncio.TimerHandle] = None

    # ------------------------------------------------------------ the life of it

    async def run(self) -> int:
        """Sweep, take over what was left, then serve until stopped or refused for good."""
        self._swept = self._state.sweep()
        shutil.rmtree(self._state.scratch, ignore_errors=True)
        self._state.scratch.mkdir(exist_ok=True)
        if not self._holdings.take_over():
            self._background(self._cache.trim())
        self._start_warden()
        if self._withheld:
            _log.info("kept from user code, as they look like credentials: %s", ", ".join(self._withheld))
        self._heard()
        self._background(self._connect())
        try:
            return await self._end
        finally:
            await self._close()

    async def _close(self) -> None:
        for timer in (self._watch, self._orphan):
            if timer is not None:
                timer.cancel()
        self._holdings.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._warden is not None:
            self._warden.close()
        self._cache.close()

    def signalled(self) -> None:
        """SIGTERM or Ctrl-C: the first drains, the second ends engines with grace, a third at once."""
        self._signals += 1
        running = len(self._holdings.running)
        if self._signals == 1:
            _log.info("draining: takes nothing new, %d jobs to finish", running)
            if not self._leave_if_done():
                self._loop.call_later(_SECOND_SIGNAL_S, self._say_draining)
        elif self._signals == 2:
            self._stop("stopping", self._holdings.times.margin_s / 2)
        else:
            self._pool.kill_all()

    def _say_draining(self) -> None:
        """Attach again: a hello is what says that nothing new is taken."""
        if self._signals == 1 and self._session is not None:
            self._session.finish("draining")

    def _stop(self, why: str, linger_s: float) -> None:
        running = self._holdings.running
        _log.info("%s: ends %d jobs with grace", why, len(running))
        for attempt in running:
            attempt.stop("stopped")
        self._background(self._leave(linger_s))

    async def _leave(self, linger_s: float) -> None:
        for attempt in self._holdings.running:
            await attempt.over.wait()
        # What is not acknowledged by then stays on disk for the next agent.
        await asyncio.sleep(linger_s)
        self._finish("stopped")

    def _leave_if_done(self) -> bool:
        if self._signals and self._holdings.empty and not self._holdings.running:
            self._finish("drained" if self._signals == 1 else "stopped")
            return True
        return False

    def _finish(self, why: str) -> None:
        if not self._leaving:
            self._leaving = True
            _log.info("%s", why)
        if self._session is not None:
            self._session.finish(why, Bye(why))
            self._loop.call_later(1.0, self._set_end, STOPPED)  # a goodbye may not hold it up
        else:
            self._set_end(STOPPED)

    def _set_end(self, code: int) -> None:
        if not self._end.done():
            self._end.set_result(code)

    def _background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._background_ended)

    def _background_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and not self._end.done():
            self._end.set_exception(task.exception() or RuntimeError())

    # ------------------------------------------------------------ the warden

    def _start_warden(self) -> None:
        link = WardenLink(self._state.path, self._environ, self._pool.warden_message, self._warden_ended)
        link.margin_s = self._holdings.times.margin_s
        self._warden = self._pool.warden = link
        self._renewed()

    def _warden_ended(self, why: str) -> None:
        _log.warning("%s; its engines end with it, and another takes its place", why)
        self._warden = self._pool.warden = None
        self._background(self._replace_warden())

    async def _replace_warden(self) -> None:
        await kill_inherited(set(self._cache.children))
        self._pool.warden_ended()
        self._start_warden()

    # ------------------------------------------------------------ evidence

    def _renewed(self) -> None:
        """Evidence has changed: tell the warden, and look again when it runs out."""
        if self._warden is not None and self._evidence.ordinary > 0:
            self._warden.deadlines(self._evidence.ordinary, self._evidence.strict)
        self._watch_deadline()

    def _watch_deadline(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        now = lease_now()
        ahead = [at - now for at in (self._evidence.ordinary, self._evidence.strict) if at > now]
        self._watch = self._loop.call_later(min(ahead), self._at_deadline) if ahead else None

    def _at_deadline(self) -> None:
        self._check_deadlines()
        self._watch_deadline()

    def _check_deadlines(self) -> bool:
        """Give up what has outlived its lease; whether that is everything. Asked before every frame."""
        now = lease_now()
        if now < self._evidence.strict:
            return False
        everything = now >= self._evidence.ordinary
        self._holdings.expire(strict_only=not everything)
        if everything:
            self._pool.kill_all()
        return everything

    def _acknowledged(self, sent_at: float) -> None:
        self._evidence.acknowledged(sent_at)
        self._heard()
        self._renewed()

    def _heard(self) -> None:
        if self._orphan is not None:
            self._orphan.cancel()
        if self._options.orphan_s is not None:
            self._orphan = self._loop.call_later(self._options.orphan_s, self._orphaned)

    def _orphaned(self) -> None:
        if self._signals < 2:
            self._signals = 2
            self._stop(f"no server has answered for {self._options.orphan_s:g} s", 0.0)

    # ------------------------------------------------------------ sessions

    async def _connect(self) -> None:
        while not self._end.done():
            try:
                why = await self._attend()
            except DialRefused as error:
                _log.error("refused: %s", error)
                self._set_end(REFUSED)
                return
            if self._leave_if_done() or self._leaving:
                self._set_end(STOPPED)
                return
            if why == "draining":
                continue
            limit = min(
                _RETRY_S_MAX, self._holdings.times.lease_s / 3, _RETRY_S * 2 ** min(self._failures, 8)
            )
            delay_s = random.uniform(0, limit)
            self._failures += 1
            _log.warning("not connected: %s; dialling again in %.1f s", why, delay_s)
            await asyncio.sleep(delay_s)

    async def _attend(self) -> str:
        """One session, from the dial to its end; says why it ended. Raises `DialRefused`."""
        timeout_s = min(_OPEN_S, self._holdings.times.lease_s * 2 / 3)
        link: Optional[ClientConnection] = None
        try:
            address, link = await self._dial(timeout_s)
            sent_at = lease_now()
            await link.send(encode(self._hello()))
            welcome = _opening(decode(str(await asyncio.wait_for(link.recv(), timeout_s))))
            self._welcome(welcome, sent_at, address)
            session = Session(
                link,
                self._holdings.times.heartbeat_s,
                self._holdings.next_report,
                self._receive,
                self._holdings.behind,
            )
            self._session = self._holdings.session = session
            self._holdings.resume(welcome.resume)
            await session.run()
            return "the session ended"
        except asyncio.TimeoutError:  # noqa: UP041 - another class before 3.11
            return "the server did not answer the hello"
        except ConnectionClosed as error:
            return f"the connection broke: {error}"
        except (SessionOver, NotConnected, ProtocolViolation, BadAddress) as error:
            return str(error)
        finally:
            self._session = self._holdings.session = None
            if link is not None:
                link.transport.abort()

    async def _dial(self, timeout_s: float) -> Tuple[Address, ClientConnection]:
        address = self._options.address()
        self._transfer.address = address
        began_at = lease_now()
        known = self._session_key is not None
        try:
            return address, await dial(address, self._options.token, self._transfer.tls, timeout_s, known)
        except NotConnected as error:
            self._check_deadlines()
            if error.refused:
                self._evidence.refused(began_at)
                self._renewed()
            raise

    def _hello(self) -> Hello:
        return Hello(
            protocol=list(SUPPORTED),
            version=__version__,
            name=self._options.name,
            instance=self._state.instance,
            boot_id=_boot_id(),
            host=socket.gethostname(),
            python=self._options.python_version,
            parallel=self._options.parallel,
            held=self._holdings.hello_lines(self._evidence.rides_outage(lease_now())),
            swept=self._swept,
            session_key=self._session_key,
            incarnation=self._incarnation,
            draining=self._signals > 0,
            inventory=asdict(self._options.inventory),
        )

    def _welcome(self, message: Welcome, sent_at: float, address: Address) -> None:
        self._check_deadlines()
        times = Times(**{name: value for name, value in message.times.items() if hasattr(Times, name)})
        self._holdings.times = self._evidence.times = times
        if self._warden is not None:
            self._warden.margin_s = times.margin_s
        self._acknowledged(sent_at)
        self._failures = 0
        self._session_key = message.session_key
        self._incarnation = message.incarnation
        self._holdings.runtime = message.runtime
        self._holdings.limits = message.limits
        self._background(self._prefetch(message.runtime))
        labels = ", ".join(message.labels) or "none"
        _log.info("attached to %s as %s with labels %s", address.text, message.name, labels)

    async def _prefetch(self, runtime: str) -> None:
        try:
            await self._cache.runtime(runtime)
        except NotFetched as error:
            _log.warning("the runtime is not here yet: %s", error)

    def _receive(self, message: Any) -> None:
        if self._check_deadlines():
            raise SessionOver("the lease ran out while this process stood still")
        if isinstance(message, Ack) and message.n is not None:
            sent_at = self._session.answered(message.n) if self._session is not None else None
            if sent_at is not None:
                self._acknowledged(sent_at)
            return
        handler = self._holdings.handlers.get(type(message))
        if handler is None:
            raise ProtocolViolation(f"{message.type} is not for an agent, or not now")
        handler(message)


def _opening(message: Any) -> Welcome:
    """The welcome in the server's first message. Raises for everything else it may be."""
    if isinstance(message, Welcome):
        return message
    if isinstance(message, Refused):
        raise (DialRefused if message.final else NotConnected)(f"{message.message} ({message.code})")
    raise ProtocolViolation(f"{message.type} instead of a welcome")


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
