"""One attempt of a job on this worker: from the hand-off to the end of its engine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, Callable, Dict, List, Optional, Sequence

from .asking import Asking
from .bells import Bells
from .blobs import NotFetched
from .clock import wall_now
from .engine import Ended, Engine
from .fates import RETURNED, exit_of, exit_without, fate_of, was_asked_by_signal
from .handing import job_of, reports_of
from .host import Host
from .lines import Line
from .preparing import NotStarted, Preparation, why_not
from .protocol import Assign, Exit, Outcome, Proceed, Reply
from .stopping import Stop
from .transfer import Claim
from .watches import Watches

_log = logging.getLogger("farhand.worker")
_TOLD_S = 2.0
"""A scheduler signals all processes in an allocation, in any order: the agent within so long of an engine."""


class Attempt:
    """Prepares, hands the job to an engine, listens to it, ends it when told to, and seals its reports."""

    begun = blocked = False
    _turn = _hindered = _slot_left = False
    _retire = False
    left_in_order = False
    """Whether its engine is done with it, has closed all it wrote to, and is ready for the next."""
    _returned = _trouble = ""
    _engine: Optional[Engine] = None
    _vacant: Optional[Engine] = None
    _early_end: Optional[Ended] = None
    _fate: Optional[str] = None
    _stop: Optional[Stop] = None
    _told_to_stop: Optional[asyncio.Event] = None
    _preparing: Optional[asyncio.Task[Engine]] = None
    _watches: Optional[Watches] = None

    def __init__(self, host: Host, assign: Assign) -> None:
        self.assign = assign
        self._line: Line = host.lines.of(assign)
        self.reports = reports_of(assign, host)
        self.claim = Claim(assign.job, assign.lease)
        self.over = asyncio.Event()
        self._host = host
        self._loop = asyncio.get_running_loop()
        silence_s = assign.settings.get("silence_timeout_s")
        if silence_s is not None or assign.timeout_s is not None:
            self._watches = Watches(assign.timeout_s, silence_s, self.end_now, self.reports.grow, host.limits)
        self._bells = Bells(self.reports, lambda: host.wake_now(self))
        self._asking = Asking(host, assign, self.claim)
        self._preparation = Preparation(
            host, assign, self.claim, self, lambda: self._asking.coming_soon(assign.args)
        )

    @property
    def ended(self) -> bool:
        """Whether no engine executes this any more, or none will in a moment."""
        return self.over.is_set() or self._fate is not None or self.reports.sealed

    @property
    def strict(self) -> bool:
        """Whether an outage may not be ridden out."""
        return self.assign.strict

    # ------------------------------------------------------------ the life of it

    def start(self, predecessors: Sequence[Any]) -> None:
        """Wait for its slot, behind those that were handed over for it before; and for those it replaces.

        From there on one thing calls the next, down to the seal: a task would cost a short job more than
        all that is done for it. What has to be waited for is waited for beside.
        """
        self._hindered = bool(predecessors)
        if self._hindered:
            self._host.background(self._start_after(predecessors))
        self._line.join(self)
        if not self._turn:
            self._asking.fetch_in_line(self.assign.args)

    async def _start_after(self, predecessors: Sequence[Any]) -> None:
        for older in predecessors:
            await older.over.wait()
        self._hindered = False
        if self._turn:
            self._go()

    def begin(self) -> None:
        """It is its turn on its slot, or it will have none."""
        if not self._turn:
            self._turn = True
            self.begun = self._asked_for is None
            if not self._hindered:
                self._go()

    def give_back(self, why: str) -> None:
        """It waits behind another and is not to wait any longer."""
        self._fate, self._returned = self._fate or RETURNED, why

    def recall(self) -> None:
        """It is wanted elsewhere, unless it has begun."""
        if not self._turn:
            self.give_back("another slot is free for it")
            self._line.leave(self)

    def _go(self) -> None:
        """Hand the job over, at once where there is an engine for it."""
        if self._asked_for is not None:
            self._host.speaks(self)
            self._end(self._without_engine(self._returned))
            return
        try:
            engine = self._preparation.at_hand()
        except OSError as error:
            self._cannot_begin(why_not(error))
            return
        if engine is None:
            self._host.background(self._prepare())
        else:
            self._hand_over(engine)

    async def _prepare(self) -> None:
        """The same when something is not here yet: as a task of its own, which a stop can cancel."""
        self._preparing = asyncio.ensure_future(self._preparation.engine())
        try:
            engine = await self._preparing
        except (NotFetched, OSError) as error:
            if isinstance(error, NotStarted):
                self._fate = self._fate or fate_of(error.end)
            self._cannot_begin(why_not(error))
        except asyncio.CancelledError:
            self._cannot_begin("")
        except Exception as error:  # noqa: BLE001 - of this one alone, and not of the whole agent
            _log.exception("job %s could not be prepared", self.assign.job)
            self._cannot_begin(f"this worker cannot prepare it: {error!r}")
        else:
            self._hand_over(engine)

    def _cannot_begin(self, why: str) -> None:
        self._trouble = "the one before it could not begin"
        self._host.speaks(self)
        self._end(self._without_engine(why))

    def _hand_over(self, engine: Engine) -> None:
        self._engine = self._asking.engine = engine
        host, grace_s = self._host, self._grace_s
        job = job_of(self.assign, host, self._preparation, self.reports, grace_s)
        ways = {"armed": False, "unanswered": True, "tell_result": not self._line.followed}
        engine.channel.send("job", **ways, **job, args_path=self._asking.at_hand(self.assign.args))
        self._bells.begin(engine)
        host.speaks(self)
        if self._fate is not None:
            self._kill()
        elif self._stop is not None:  # it came while the engine was being made ready
            engine.channel.send("cancel", reason=self._stop.reason)
        if self._watches is not None:
            self._watches.begin(grace_s)
        if self._early_end is not None:
            self.engine_ended(self._early_end)

    def engine_ended(self, end: Ended) -> None:
        """The engine is gone with all it had started."""
        if self._engine is None:
            self._early_end = end
            return
        self._part()
        self._trouble = "the engine of the one before it ended"
        if self._host.allocated and self._asked_for is None and was_asked_by_signal(end):
            self._host.background(self._end_when_told(end))
        else:
            self._end_crashed(end)

    async def _end_when_told(self, end: Ended) -> None:
        """The order to stop may follow the signal that came with it."""
        told = self._told_to_stop = asyncio.Event()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(told.wait(), _TOLD_S)
        self._end_crashed(end)

    def _end_crashed(self, end: Ended) -> None:
        crashed = Exit(wall_now(), "crashed", end.text, end.code, end.signal)
        self._end(exit_of(self.assign, self._asked_for or fate_of(end), crashed))

    def _on_result(self, _header: Dict[str, Any]) -> None:
        """It is in the spool, and all that its code had started has ended: the server gets it while the
        engine clears up, unless there is soon more to tell.
        """
        engine = self._engine
        if engine is None or self._line.followed:
            return
        engine.drain_output()
        try:
            sealed = self.reports.seal_result(self._keeps_result)
        except OSError:  # it is looked for again when the engine is done
            return
        if sealed:
            self._host.wake_now(self)
            self._host.pool.clears(engine, self._grace_s)

    def _on_done(self, header: Dict[str, Any]) -> None:
        """The engine has done with the job, and is ready for the next unless it says otherwise."""
        engine = self._engine
        if engine is None:
            return
        self._retire = bool(header.get("retire"))
        self.left_in_order = not self._retire
        self._part()
        engine.drain_output()
        self._vacant = engine
        self._end(self._without_engine("the engine ended the job without a result", "crashed"))

    def _part(self) -> None:
        if self._watches is not None:
            self._watches.close()
        self._bells.end()
        self._engine = self._asking.engine = None

    @property
    def _asked_for(self) -> Optional[str]:
        """Why this agent ends the attempt, if it does."""
        return self._fate or (self._stop.reason if self._stop else None)

    def _without_engine(self, why: str, otherwise: str = "not_started") -> Exit:
        return exit_without(self.assign, self._asked_for, why, otherwise)

    def _end(self, end: Exit) -> None:
        """It is over: who waits for the slot has it first, then the server hears of it, then the rest."""
        if self._line.followed:
            self._leave_slot()
        sealed = self.reports.sealed
        try:
            if not (sealed or self.reports.gone):
                self.reports.seal(end, self._keeps_result)
        except OSError:  # a disk that is full may have room again
            self._leave_slot()
            self._host.background(self._end_at_last(end))
        else:
            self._tell_end(known=sealed)

    async def _end_at_last(self, end: Exit) -> None:
        await self.reports.seal_at_last(end, self._keeps_result)
        self._tell_end()

    @property
    def _keeps_result(self) -> bool:
        """Whether any result counts; of one that stops for the worker's sake only a completed one."""
        return self._stop is None or self._stop.reason != "stopped"

    def _tell_end(self, known: bool = False) -> None:
        if not known:
            if self.begun and self._slot_left and self._line.busy:
                self._host.wake_soon()
            else:
                self._host.wake_now(self)
        self._leave_slot()
        if self._stop is not None:
            self._stop.close()
        self._asking.close()
        self._host.cache.let_go(self.claim)
        if self._preparation.clear(self.left_in_order):
            self._be_over()
        else:
            self._host.background(self._clear())

    def _leave_slot(self) -> None:
        """Engine and slot are the next one's, once."""
        if self._slot_left:
            return
        self._slot_left = True
        engine, self._vacant = self._vacant, None
        if engine is not None:
            retire = self._retire or bool(engine.key.isolated) or self._stop is not None
            self._host.pool.release(engine, retire)
        self._line.leave(self, self._trouble)

    async def _clear(self) -> None:
        await self._preparation.clear_at_last()
        self._be_over()

    def _be_over(self) -> None:
        self.over.set()
        self._host.attempt_over(self)

    # ------------------------------------------------------------ what ends it

    @property
    def _grace_s(self) -> float:
        return float(self.assign.settings.get("grace_s") or self._host.times.grace_s)

    def stop(self, reason: str) -> None:
        """Cancel: an exception in user code now, SIGTERM to the group soon, SIGKILL after the grace."""
        if self._stop is not None or self.over.is_set():
            return
        self._stop = Stop(reason, self._grace_s, self._terminate, self._kill)
        if self._told_to_stop is not None:
            self._told_to_stop.set()
        if self._engine is not None:
            self._engine.channel.send("cancel", reason=reason)
        elif self._preparing is not None:
            self._preparing.cancel()
        elif not self._turn:
            self._line.leave(self)

    def end_now(self, fate: str) -> None:
        """Kill at once, without grace; ``fate`` is why."""
        if not self.over.is_set():
            self._fate = self._fate or fate
            if self._engine is not None:
                self._kill()
            elif self._preparing is not None:
                self._preparing.cancel()
            elif not self._turn:
                self._line.leave(self)

    def fence(self) -> None:
        """The lease is not current: kill at once, and nothing of it is reported any more."""
        self.reports.delete()
        self.end_now("cancelled")

    def _terminate(self) -> None:
        if self._engine is not None:
            self._host.pool.terminate(self._engine)

    def _kill(self) -> None:
        if self._engine is not None:
            self._host.pool.kill(self._engine)

    # ------------------------------------------------------------ what the engine says

    def frame(self, header: Dict[str, Any]) -> None:
        """A frame from the engine; an unknown one is a newer engine's and is passed over."""
        handler = _FRAMES.get(str(header.get("type")))
        if handler is not None:
            handler(self, header)

    def lines(self, lines: List[str]) -> None:
        """Output outside of Python's own streams."""
        if self._watches is not None and self._watches.heard() and self._engine is not None:
            self._engine.channel.send("heard")
        self.reports.log(lines)
        self._host.wake()

    def _on_importing(self, header: Dict[str, Any]) -> None:
        if self._watches is not None:
            self._watches.importing(bool(header.get("begins")))

    def _on_blocked(self, header: Dict[str, Any]) -> None:
        """Its engine waits for placed calls, or for its slot after that, and has nothing to say meanwhile."""
        self.blocked = bool(header.get("blocked"))
        if self._watches is not None:
            self._watches.block(self.blocked)
        self._line.look()

    # ------------------------------------------------------------ what the server says

    def recorded(self, source: str, number: int) -> None:
        """The server has recorded up to ``number``."""
        self._bells.recorded(source, number)

    def outcome(self, message: Outcome) -> None:
        """A call that this job placed elsewhere has ended."""
        if self._engine is not None:
            path = self._asking.value_path(message.body.get("value"), message.seen)
            told = {} if path is None else {"path": str(path)}
            self._engine.channel.hold("outcome", key=message.key, body=message.body, **told)
            self._host.flush_later(self._engine.channel)

    def proceed(self, message: Proceed) -> None:
        """The job was blocked and has its slot again."""
        if self._engine is not None:
            self._engine.channel.send("proceed", n=message.n)

    def reply(self, message: Reply) -> None:
        """The server's answer to a request of the engine."""
        self._asking.reply(message)

    def ask_again(self) -> None:
        """A new session: what was asked and not answered is asked again."""
        self._asking.ask_again()


_FRAMES: Dict[str, Callable[[Attempt, Dict[str, Any]], None]] = {
    "bell": lambda attempt, header: attempt._bells.rung(header),  # pyright: ignore[reportPrivateUsage]
    "result": Attempt._on_result,  # pyright: ignore[reportPrivateUsage]
    "done": Attempt._on_done,  # pyright: ignore[reportPrivateUsage]
    "request": lambda attempt, header: attempt._asking.ask(header),  # pyright: ignore[reportPrivateUsage]
    "blocked": Attempt._on_blocked,  # pyright: ignore[reportPrivateUsage]
    "importing": Attempt._on_importing,  # pyright: ignore[reportPrivateUsage]
}
