"""The agent: one worker's life, from the sweep of what was left to the end of the last engine."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import shutil
import signal
from typing import Any, Coroutine, List, Optional, Set

from .allocation import SIGNALS, leads
from .attendance import Attendance
from .blobs import BlobCache, NotFetched
from .cache import Cache
from .checkout import Checkout
from .clock import wall_now
from .descriptors import make_room
from .dial import DialRefused
from .engines import Pool
from .environment import user_environment
from .holdings import Holdings
from .idle import Idle
from .launch import Launched
from .mishaps import notice
from .nearby import Nearby
from .observer import Observer
from .options import Options
from .orders import Orders
from .protocol import Assign, Compare, Welcome
from .renewal import Renewal
from .state import StateDirectory
from .status_server import StatusServer
from .surroundings import Surroundings
from .transfer import Transfer
from .usage import Usage
from .warden_link import WardenLink, kill_inherited
from .warden_process import WardenProcess

STOPPED, REFUSED = 0, 3
"""Exit codes: ended in order; refused for good."""

_SECOND_SIGNAL_S = 0.05
_GARBAGE = 5000
"""So many new objects, a hundred jobs' worth, before one looks for garbage among them."""
_log = logging.getLogger("farhand.worker")


class Agent:
    """One agent's life on one state directory, with what was launched ahead. `run` returns the exit code."""

    def __init__(self, options: Options, state: StateDirectory, launched: Launched) -> None:
        self._launched = launched
        self._options = options
        self._state = state
        self._loop = asyncio.get_running_loop()
        self._end: asyncio.Future[int] = self._loop.create_future()
        self._environ, self._withheld = user_environment(os.environ, options.pass_env)
        self._transfer = Transfer(options.token, pin=options.pin, artifacts=options.artifacts)
        self._nearby = Nearby(None if options.beside_server else options.shared_paths)
        self._cache = Cache(
            state, self._transfer, options.python, _blobs(options, state), launched.ahead, self._nearby
        )
        self._pool = Pool(state, options.python, self._environ, max(1, options.parallel))
        self._holdings = Holdings(
            state, self._cache, self._pool, options.checkout or options.cwd, self._settled, self._background
        )
        checkout = None if options.checkout is None else Checkout(options.checkout)
        self._holdings.checkout = checkout
        self._holdings.shared_paths = None if options.beside_server else list(options.shared_paths)
        self._holdings.allocated = options.allocation is not None
        self._surroundings = Surroundings(
            checkout,
            self._cache,
            self._holdings.send,
            self._pool.environment_changed,
            state.path / "installed",
        )
        self._holdings.surroundings = self._surroundings
        self._holdings.handlers[Compare] = self._surroundings.compare
        self._pool.began = self._surroundings.engine_began
        self._renewal = Renewal(self._holdings, self._pool, self._heard)
        self._orders = Orders(options.parallel, self._pool, self._holdings, self._leave_if_done, self._beat)
        self._attendance = Attendance(
            options,
            state,
            self._holdings,
            self._transfer,
            self._renewal,
            self._orders,
            self._welcomed,
            self._surroundings,
        )
        self._observer = Observer(options, self._attendance, self._holdings, self._orders, self._surroundings)
        self._page = StatusServer(options.status_host, options.status_port, self._observer.look)
        self._tasks: Set[asyncio.Task[Any]] = set()
        self._warden: Optional[WardenLink] = None
        self._signals = 0
        self._leaving = False
        self._orphan: Optional[asyncio.TimerHandle] = None
        self._idle: Optional[Idle] = None
        self._ends: List[asyncio.TimerHandle] = []

    # ------------------------------------------------------------ the life of it

    async def run(self) -> int:
        """Sweep, take over what was left, then serve until stopped or refused for good.

        Raises `Usage` when the status page cannot listen where it was told to.
        """
        notice(self._loop, self._fail)
        await self._show_status()
        self._take_over()
        self._attendance.swept = self._state.sweep()
        shutil.rmtree(self._state.scratch, ignore_errors=True)
        self._state.scratch.mkdir(exist_ok=True)
        self._holdings.take_over()
        if self._withheld:
            _log.info("kept from user code, as they look like credentials: %s", ", ".join(self._withheld))
        if self._options.max_idle_s is not None:
            self._idle = Idle(self._options.max_idle_s, self._busy, self._leave_idle)
        self._watch_the_end()
        self._heard()
        self._background(self._look_ahead())
        self._background(self._attend())
        self._background(self._surroundings.watch())
        try:
            return await self._end
        finally:
            await self._close()

    async def _show_status(self) -> None:
        host, port = self._options.status_host, self._options.status_port
        try:
            self._attendance.status_url = await self._page.start()
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else error
            raise Usage(
                f"the status page cannot listen at {host}:{port}: {why}; give --status-port"
            ) from error
        _log.info("status page at %s", self._attendance.status_url)

    async def _attend(self) -> None:
        try:
            await self._attendance.keep(self._over)
        except DialRefused as error:
            _log.error("refused: %s", error)
            self._set_end(REFUSED)
        else:
            self._set_end(STOPPED)

    def _over(self) -> bool:
        return self._end.done() or self._leave_if_done() or self._leaving

    async def _close(self) -> None:
        self._renewal.close()
        self._attendance.tunnels.close()
        self._page.close()
        self._observer.close()
        if self._orphan is not None:
            self._orphan.cancel()
        if self._idle is not None:
            self._idle.close()
        for timer in self._ends:
            timer.cancel()
        self._holdings.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._warden is not None:
            self._warden.close()
        self._cache.close()

    def _background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._background_ended)

    def _background_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            self._fail(task.exception())

    def _fail(self, error: Optional[BaseException]) -> None:
        """A part of this agent has ended that another waits for: rather than go on so, it ends."""
        if error is not None and not self._end.done():
            self._end.set_exception(error)

    # ------------------------------------------------------------ the ways it ends

    def signalled(self, number: int = signal.SIGINT) -> None:
        """SIGTERM or Ctrl-C: the first drains, the second ends engines with grace, a third at once.

        In an allocation SIGTERM is the scheduler's, who kills soon: its first counts as the second, and so
        does SIGUSR1, which is nothing elsewhere.
        """
        self._signals += 1
        if self._signals == 1 and number in SIGNALS and self._options.allocation is not None:
            self._signals = 2
        running = len(self._holdings.begun)
        if self._signals == 1:
            _log.info("draining: takes nothing new, %d jobs to finish", running)
            self._attendance.draining = True
            if not self._leave_if_done():
                self._loop.call_later(_SECOND_SIGNAL_S, self._drain)
        elif self._signals == 2:
            self._stop("stopping", self._holdings.times.margin_s)
        else:
            self._pool.kill_all()

    def _drain(self) -> None:
        """No second signal has followed at once."""
        if self._signals == 1:
            self._say_draining("draining")
            self._holdings.drain()

    def _say_draining(self, why: str) -> None:
        """To be said first: else what ends here, or is given back, would be handed here again."""
        self._attendance.draining = True
        self._attendance.say_hello_again(why)

    def _watch_the_end(self) -> None:
        """Be done with work before the machine is taken away."""
        allocation = self._options.allocation
        if allocation is None or allocation.ends_at is None:
            return
        left_s = max(0.0, allocation.ends_at - wall_now())
        lead = leads(left_s, self._holdings.times.grace_s)
        self._ends = [
            self._loop.call_later(left_s - lead.drain_s, self._allocation_ends, 1),
            self._loop.call_later(left_s - lead.stop_s, self._allocation_ends, 2),
        ]

    def _allocation_ends(self, signals: int) -> None:
        """As if so many signals had come, unless they have."""
        if self._signals < signals:
            _log.info("the allocation ends soon")
            self._signals = signals - 1
            self.signalled()

    def _stop(self, why: str, linger_s: float) -> None:
        running = self._holdings.running
        _log.info("%s: ends %d jobs with grace", why, len(running))
        self._holdings.handlers[Assign] = lambda _: None  # it goes elsewhere, as nobody answers
        self._say_draining(why)
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
        if not self._holdings.empty or self._holdings.running:
            return False
        if (self._signals or self._orders.draining) and self._attendance.attached:
            self._orders.drained()
        if not self._signals:
            return False
        self._finish("drained" if self._signals == 1 else "stopped")
        return True

    def _beat(self) -> None:
        self._attendance.beat()

    def _leave_idle(self) -> None:
        self._finish(f"nothing to do for {self._options.max_idle_s:g} s; stopping")

    def _busy(self) -> bool:
        """Whether there is work: a job held, whatever its kind or state, or a file on its way."""
        return not self._holdings.empty or bool(self._holdings.running) or self._cache.fetching

    def _settled(self) -> None:
        if self._idle is not None:
            self._idle.worked()
        self._leave_if_done()

    def _finish(self, why: str) -> None:
        if self._leaving:
            return
        self._leaving = True
        _log.info("%s", why)
        if self._attendance.part(why):
            self._loop.call_later(1.0, self._set_end, STOPPED)  # a goodbye may not hold it up
        else:
            self._set_end(STOPPED)

    def _set_end(self, code: int) -> None:
        if not self._end.done():
            self._end.set_result(code)

    # ------------------------------------------------------------ the warden

    def _take_over(self) -> None:
        """Have what was started before this agent was loaded."""
        stem = self._launched.take()
        self._have_warden(self._launched.warden)
        if stem is not None:
            self._pool.adopt(stem)

    def _have_warden(self, process: WardenProcess) -> None:
        link = WardenLink(process, self._pool.warden_message, self._warden_ended)
        self._warden = self._pool.warden = link
        self._renewal.watch_over(link)

    def _warden_ended(self, why: str) -> None:
        _log.warning("%s; its engines end with it, and another takes its place", why)
        self._warden = self._pool.warden = None
        self._renewal.watch_over(None)
        self._background(self._replace_warden())

    async def _replace_warden(self) -> None:
        await kill_inherited(set(self._cache.children))
        self._pool.warden_ended()
        self._have_warden(WardenProcess(self._environ))
        self._pool.plant()

    # ------------------------------------------------------------ the server

    def _heard(self) -> None:
        """The server answered: an orphan it is not."""
        if self._orphan is not None:
            self._orphan.cancel()
        if self._options.orphan_s is not None:
            self._orphan = self._loop.call_later(self._options.orphan_s, self._orphaned)

    def _orphaned(self) -> None:
        if self._signals < 2:
            self._signals = 2
            self._stop(f"no server has answered for {self._options.orphan_s:g} s", 0.0)

    def _welcomed(self, message: Welcome) -> None:
        self._holdings.runtime = message.runtime
        self._holdings.limits = message.limits
        self._background(self._look_nearby(message))
        self._background(self._prefetch(message.runtime))

    async def _look_nearby(self, message: Welcome) -> None:
        await self._loop.run_in_executor(None, self._nearby.prove, message.blobs)
        self._transfer.copy = self._nearby.copy if self._nearby.seen else None

    async def _look_ahead(self) -> None:
        """Have the runtime ready that the server is likely to name."""
        await self._cache.trim()
        try:
            digest = await self._cache.ahead()
            if digest is not None:
                runtime = await self._cache.runtime(digest)
                if self._holdings.runtime in ("", digest):
                    self._pool.prepare(runtime)
        except (NotFetched, OSError) as error:
            _log.debug("no runtime ahead: %s", error)  # the dial says what is wrong, and it is fetched then

    async def _prefetch(self, runtime: str) -> None:
        try:
            self._pool.prepare(await self._cache.runtime(runtime))
        except (NotFetched, OSError) as error:
            _log.warning("the runtime is not here yet: %s", error)


def work(options: Options, state: StateDirectory, launched: Launched) -> int:
    """One agent from its beginning to its end; the exit code. Raises `Usage`."""
    return asyncio.run(_serve(options, state, launched))


async def _serve(options: Options, state: StateDirectory, launched: Launched) -> int:
    make_room()
    agent = Agent(options, state, launched)
    gc.freeze()  # what is loaded stays: each look for garbage would go through it
    gc.set_threshold(_GARBAGE)
    loop = asyncio.get_running_loop()
    for number in {signal.SIGTERM, signal.SIGINT, *(SIGNALS if options.allocation is not None else ())}:
        loop.add_signal_handler(number, agent.signalled, number)
    return await agent.run()


def _blobs(options: Options, state: StateDirectory) -> BlobCache:
    """What is kept of the server's blobs; a cache apart has a directory for each state directory."""
    apart = options.artifact_cache
    return BlobCache(state.blobs if apart is None else apart / state.identity, options.artifact_cache_bytes)
