"""One attempt of a job on this worker: from the hand-off to the end of its engine."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .asking import Asking
from .blobs import NotFetched
from .clock import wall_now
from .engine import Ended, Engine
from .fates import RETURNED, exit_of, exit_without, fate_of, was_asked_by_signal
from .host import Host
from .lines import Line
from .preparing import NotStarted, Preparation
from .protocol import SPOOL_BYTES_MAX, Assign, Exit, Outcome, Proceed, Reply
from .reports import Reports
from .transfer import Claim

_TERM_SHARE = 0.2
_TERM_S = 2.0
_LOOKS_AT_SILENCE = 5
_TOLD_S = 2.0
"""A scheduler signals all processes in an allocation, in any order: the agent within so long of an engine."""


class _Stop(NamedTuple):
    reason: str
    timers: List[asyncio.TimerHandle]


class Attempt:
    """Prepares, hands the job to an engine, listens to it, ends it when told to, and seals its reports."""

    def __init__(self, host: Host, assign: Assign) -> None:
        self.assign = assign
        self.begun = False
        self.blocked = False
        self._line: Line = host.lines.of(assign)
        self._turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._spool_bytes_max = host.limits.get("spool_bytes", SPOOL_BYTES_MAX)
        self.reports = Reports(
            host.state.spool, host.state.outgoing, assign.job, assign.lease, self._spool_bytes_max
        )
        self.claim = Claim(assign.job, assign.lease)
        self.over = asyncio.Event()
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._engine: Optional[Engine] = None
        self._ended: asyncio.Future[Optional[Ended]] = self._loop.create_future()
        self._engine_gone = False
        self._returned = ""
        self._retire = False
        self._left_in_order = False
        self._said_at = float("-inf")
        self._stop: Optional[_Stop] = None
        self._timers: List[Any] = []
        self._told_to_stop = asyncio.Event()
        self._fate: Optional[str] = None
        self._ack_wanted = False
        self._asking = Asking(host, assign, self.claim)
        self._preparation = Preparation(
            host, assign, self.claim, self, lambda: self._asking.fetch_value(assign.args)
        )
        self._preparing: Optional[asyncio.Task[Engine]] = None
        self._frames: Dict[str, Callable[[Dict[str, Any]], None]] = {
            "bell": self._on_bell,
            "result": self._on_result,
            "done": self._on_done,
            "request": self._asking.ask,
            "blocked": self._on_blocked,
        }

    @property
    def ended(self) -> bool:
        """Whether no engine executes this any more, or none will in a moment."""
        return self.over.is_set() or self._fate is not None or self.reports.sealed

    @property
    def strict(self) -> bool:
        """Whether an outage may not be ridden out."""
        return self.assign.strict

    # ------------------------------------------------------------ the life of it

    async def run(self, predecessors: Sequence[Any]) -> None:
        """Everything from the hand-off to the seal; never raises."""
        for older in predecessors:
            await older.over.wait()
        await self._turn
        self._host.speaks(self)
        end, trouble = await self._executed()
        self._line.leave(self, trouble)
        await self._seal(end)
        for timer in self._stop.timers if self._stop else []:
            timer.cancel()
        self._asking.close()
        self._host.cache.let_go(self.claim)
        await self._preparation.clear(self._left_in_order)
        self.over.set()
        self._host.attempt_over(self)

    def line_up(self) -> None:
        """Wait for its slot, behind those that were handed over for it before."""
        self._line.join(self)

    def begin(self) -> None:
        """It is its turn on its slot, or it will have none."""
        if not self._turn.done():
            self.begun = self._fate is None and self._stop is None
            self._turn.set_result(None)

    def give_back(self, why: str) -> None:
        """It waits behind another and is not to wait any longer."""
        self._fate, self._returned = self._fate or RETURNED, why

    def recall(self) -> None:
        """It is wanted elsewhere, unless it has begun."""
        if not self._turn.done():
            self.give_back("another slot is free for it")
            self._line.leave(self)

    async def _executed(self) -> Tuple[Exit, str]:
        """How it ended, and what that means for those behind it on its slot, if anything."""
        try:
            if self._fate is None and self._stop is None:
                engine = self._preparation.at_hand() or await self._prepared()
                end = await self._execute(engine)
            else:
                return self._without_engine(self._returned), ""
            trouble = "the engine of the one before it ended" if self._engine_gone else ""
            return end, trouble
        except NotStarted as error:
            self._fate = self._fate or fate_of(error.end)
            why = str(error)
        except NotFetched as error:
            why = str(error)
        except OSError as error:
            why = f"this worker cannot prepare it: {error}"
        except asyncio.CancelledError:
            why = ""
        return self._without_engine(why), "the one before it could not begin"

    async def _prepared(self) -> Engine:
        """As a task of its own, which a stop can cancel."""
        self._preparing = asyncio.ensure_future(self._preparation.engine())
        return await self._preparing

    async def _execute(self, engine: Engine) -> Exit:
        self._engine = self._asking.engine = engine
        engine.bell.set(self._look)  # as if the first had rung: most jobs end before it would be answered
        engine.channel.send("job", armed=False, tell_result=not self._line.followed, **self._job())
        if self._fate is not None:
            self._kill()
        elif self._stop is not None:  # it came while the engine was being made ready
            engine.channel.send("cancel", reason=self._stop.reason)
        self._timers += self._backstop() + self._watch_silence()
        end = await self._ended
        for timer in self._timers:
            timer.cancel()
        engine.bell.clear()
        self._engine = self._asking.engine = None
        self._engine_gone = end is not None
        if end is None:
            self._left_in_order = not self._retire
            engine.drain_output()
            alone = bool(engine.key.isolated)
            self._host.pool.release(engine, self._retire or alone or self._stop is not None)
            return self._without_engine("the engine ended the job without a result", "crashed")
        if self._host.allocated and self._asked_for is None and was_asked_by_signal(end):
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._told_to_stop.wait(), _TOLD_S)
        crashed = Exit(wall_now(), "crashed", end.text, end.code, end.signal)
        return exit_of(self.assign, self._asked_for or fate_of(end), crashed)

    @property
    def _asked_for(self) -> Optional[str]:
        """Why this agent ends the attempt, if it does."""
        return self._fate or (self._stop.reason if self._stop else None)

    def _without_engine(self, why: str, otherwise: str = "not_started") -> Exit:
        return exit_without(self.assign, self._asked_for, why, otherwise)

    async def _seal(self, end: Exit) -> None:
        if self.reports.sealed:
            return
        await self.reports.seal_at_last(end, self._keeps_result)
        if self.begun and self._line.busy:
            self._host.wake_soon()
        else:
            self._host.wake_now()

    @property
    def _keeps_result(self) -> bool:
        """Whether any result counts; of one that stops for the worker's sake only a completed one."""
        return self._stop is None or self._stop.reason != "stopped"

    def _job(self) -> Dict[str, Any]:
        assign, host, prepared = self.assign, self._host, self._preparation
        return {
            "job": assign.job,
            "lease": assign.lease,
            "attempt": assign.attempt,
            "run": assign.run,
            "kind": assign.kind,
            "flow": assign.flow,
            "entry": assign.entry,
            "args": assign.args,
            "key": assign.key,
            "bundle_dir": str(prepared.bundle),
            "manifest": str(prepared.manifest) if prepared.manifest else None,
            "checkout": str(host.checkout.root) if host.checkout else None,
            "cwd": str(prepared.scratch or host.cwd),
            "shared_paths": host.shared_paths,
            "spool": self.reports.engine_path,
            "blobs": self.reports.outgoing,
            "kept": assign.kept,
            "timeout_s": assign.timeout_s,
            "grace_s": self._grace_s,
            "settings": assign.settings,
            "spool_bytes_max": self._spool_bytes_max,
            "memory_bytes_max": host.limits.get("engine_memory_bytes"),
        }

    # ------------------------------------------------------------ what ends it

    @property
    def _grace_s(self) -> float:
        return float(self.assign.settings.get("grace_s") or self._host.times.grace_s)

    def stop(self, reason: str) -> None:
        """Cancel: an exception in user code now, SIGTERM to the group soon, SIGKILL after the grace."""
        if self._stop is not None or self.over.is_set():
            return
        grace_s = self._grace_s
        later = self._loop.call_later
        self._stop = _Stop(
            reason,
            [later(min(_TERM_S, grace_s * _TERM_SHARE), self._terminate), later(grace_s, self._kill)],
        )
        self._told_to_stop.set()
        if self._engine is not None:
            self._engine.channel.send("cancel", reason=reason)
        elif self._preparing is not None:
            self._preparing.cancel()
        elif not self._turn.done():
            self._line.leave(self)

    def end_now(self, fate: str) -> None:
        """Kill at once, without grace; ``fate`` is why."""
        if not self.over.is_set():
            self._fate = self._fate or fate
            if self._engine is not None:
                self._kill()
            elif self._preparing is not None:
                self._preparing.cancel()
            elif not self._turn.done():
                self._line.leave(self)

    def fence(self) -> None:
        """The lease is not current: kill at once, and nothing of it is reported any more."""
        self.reports.delete()
        self.end_now("cancelled")

    def _backstop(self) -> List[asyncio.TimerHandle]:
        timeout_s = self.assign.timeout_s
        if timeout_s is None:
            return []
        return [self._loop.call_later(timeout_s + self._grace_s, self.end_now, "timeout")]

    @property
    def _silence_s(self) -> Optional[float]:
        return self.assign.settings.get("silence_timeout_s")

    def _watch_silence(self) -> List[asyncio.Task[None]]:
        """End an engine that does not even notice its own silence, being stuck where Python cannot act."""
        if self._silence_s is None:
            return []
        return [asyncio.ensure_future(self._end_when_silent(self._silence_s + self._grace_s))]

    async def _end_when_silent(self, limit_s: float) -> None:
        seen_bytes, silent_since = -1, self._loop.time()
        while self.blocked or self._loop.time() - max(silent_since, self._said_at) <= limit_s:
            await asyncio.sleep(limit_s / _LOOKS_AT_SILENCE)
            written = self.reports.grow()
            if written != seen_bytes:
                seen_bytes, silent_since = written, self._loop.time()
        self.end_now("silence")

    def _terminate(self) -> None:
        if self._engine is not None:
            self._host.pool.terminate(self._engine)

    def _kill(self) -> None:
        if self._engine is not None:
            self._host.pool.kill(self._engine)

    # ------------------------------------------------------------ what the engine says

    def frame(self, header: Dict[str, Any]) -> None:
        """A frame from the engine; an unknown one is a newer engine's and is passed over."""
        handler = self._frames.get(str(header.get("type")))
        if handler is not None:
            handler(header)

    def lines(self, lines: List[str]) -> None:
        """Output outside of Python's own streams."""
        now = self._loop.time()
        if self._silence_s is not None and now - self._said_at > self._silence_s / _LOOKS_AT_SILENCE:
            self._said_at = now
            if self._engine is not None:
                self._engine.channel.send("heard")
        self.reports.log(lines)
        self._host.wake()

    def engine_ended(self, end: Ended) -> None:
        """The engine is gone with all it had started."""
        if not self._ended.done():
            self._ended.set_result(end)

    def _on_result(self, _header: Dict[str, Any]) -> None:
        """It is in the spool, and all that its code had started has ended: the server gets it while the
        engine clears up, unless there is soon more to tell. One that comes to no end of that is killed.
        """
        engine = self._engine
        if engine is None or self._line.followed:
            return
        engine.drain_output()
        with contextlib.suppress(OSError):  # it is looked for again when the engine is done
            if self.reports.seal_result(self._keeps_result):
                self._host.pool.clears(engine)
                self._host.wake_now()
                self._timers.append(self._loop.call_later(self._grace_s, self._kill))

    def _on_done(self, header: Dict[str, Any]) -> None:
        self._retire = bool(header.get("retire"))
        if not self._ended.done():
            self._ended.set_result(None)

    def _on_blocked(self, header: Dict[str, Any]) -> None:
        """Its engine waits for placed calls, or for its slot after that, and has nothing to say meanwhile."""
        self.blocked = bool(header.get("blocked"))
        self._said_at = self._loop.time()
        self._line.look()

    def _on_bell(self, header: Dict[str, Any]) -> None:
        self._ack_wanted |= bool(header.get("ack"))
        if self._engine is None:
            return
        bell = self._engine.bell
        if header.get("urgent"):
            bell.clear()
            self._look()
        elif not bell.is_set:
            bell.set(self._look)

    def _look(self) -> None:
        if self.reports.gone:
            return
        read = self.reports.grow()
        self._host.wake_now()
        self._arm(read)  # after that: the engine wakes up for it

    def _arm(self, read: int) -> None:
        if self._engine is not None:
            self._engine.channel.send("arm", read=read, acked=self.reports.acked_bytes)

    def recorded(self, source: str, number: int) -> None:
        """The server has recorded up to ``number``: an engine that waits for that, or for room, goes on."""
        before = self.reports.acked_bytes
        if self.reports.acknowledge(source, number) and self._engine is not None:
            read = self.reports.grow()
            if read - before > self._spool_bytes_max // 2 or self._ack_wanted:
                self._ack_wanted = False
                self._arm(read)

    # ------------------------------------------------------------ what the server says

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
