"""What a worker holds for its server: attempts that run, reports that are not recorded yet."""

from __future__ import annotations

import logging
import re
from functools import partial
from pathlib import Path
from typing import Any, Callable, Coroutine, Dict, List, Optional, Tuple, Type, Union

from .afterwards import Afterwards
from .cache import Cache
from .channel import Channel
from .checkout import Checkout
from .clock import wall_now
from .confirming import Confirmations
from .engines import Pool
from .fates import RETURNED
from .hosting import Hosted
from .inquiries import Inquiries
from .jobs import Attempt
from .leavings import Leavings
from .lines import Lines
from .protocol import (
    IMPORT,
    SERVICE,
    Accepted,
    Ack,
    Assign,
    Cancel,
    Exit,
    Fenced,
    Outcome,
    Proceed,
    ProtocolViolation,
    Recall,
    Reply,
    Times,
)
from .reports import Reports, leftovers
from .scratch import Scratch
from .session import Session
from .spares import Spares
from .speaking import Noted
from .state import StateDirectory
from .surroundings import Surroundings
from .tally import Tallies
from .transfer import Claim
from .trouble import DiskTrouble
from .turns import Turns
from .uploads import Uploads
from .waking import Waking

_SOON_S = 0.005
"""So long the report of a call that has ended waits for that of the next on its slot."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_log = logging.getLogger("farhand.worker")

JobKey = Tuple[str, int]
HeldJob = Union[Attempt, Hosted]


class Holdings:
    """Every (job, lease) this worker answers for, and the server's messages about them.

    An attempt is held until the server has recorded its last report, or has fenced it. ``settled`` is
    called whenever one is let go; ``background`` runs a coroutine beside everything else.
    """

    def __init__(
        self,
        state: StateDirectory,
        cache: Cache,
        pool: Pool,
        cwd: Optional[Path],
        settled: Callable[[], object],
        background: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self.state = state
        self.cache = cache
        self.pool = pool
        self.cwd = cwd
        self.scratch = Scratch(state.scratch)
        self._spares = Spares(state.scratch / "spares")
        self.disk = DiskTrouble(state.spool, self.send, background, lambda: self.times.heartbeat_s)
        self.times = Times()
        self.runtime = ""
        self.limits: Dict[str, int] = {}
        self.session: Optional[Session] = None
        self.tallies = Tallies()
        self.checkout: Optional[Checkout] = None
        self.shared_paths: Optional[List[str]] = None
        self.allocated = False
        self.surroundings: Optional[Surroundings] = None
        self.afterwards = Afterwards()
        self._noted = Noted(_log)
        self._settled = settled
        self.background = background
        self._attempts: Dict[JobKey, HeldJob] = {}
        self._latest: Dict[str, HeldJob] = {}
        self._outbox: Dict[JobKey, Reports] = {}
        self._inquiries = Inquiries(self.send)
        cache.ask = self._inquiries.ask
        uploads = Uploads(cache, background, self.wake, lambda: self.times.heartbeat_s)
        self._confirmations = Confirmations(lambda job, lease: self.send(Accepted(job, lease)))
        self._waking = Waking(self.wake)
        self.turns = Turns(self._outbox, uploads, self._confirmations, self._waking, self._lost)
        self._leavings = Leavings(state.outgoing, background)
        self._holding: List[Channel] = []
        self.lines = Lines(lambda: self.times.behind_s)
        self.handlers: Dict[Type[Any], Callable[[Any], None]] = {
            Assign: self._assign,
            Cancel: self._cancel,
            Ack: self._ack,
            Reply: self._reply,
            Outcome: self._outcome,
            Proceed: self._proceed,
            Fenced: self._fenced,
            Recall: self._recall,
        }

    # ------------------------------------------------------------ what is held

    def take_over(self) -> None:
        """Hold what an earlier agent left unsent; what nobody will send is removed."""
        end = Exit(wall_now(), "crashed", "the agent ended and its engines with it")
        for reports in leftovers(self.state.spool, self.state.outgoing):
            reports.reopen(end)
            self._outbox[reports.job, reports.lease] = reports
            self.turns.join((reports.job, reports.lease))
        unsent = {reports.outgoing for reports in self._outbox.values()}
        for path in self.state.outgoing.iterdir():
            if str(path) not in unsent:
                self._leavings.remove(str(path))

    @property
    def empty(self) -> bool:
        """Whether nothing runs and nothing waits to be sent."""
        return not self._outbox

    @property
    def running(self) -> List[HeldJob]:
        """The attempts whose engine, or service, has not ended, or not begun."""
        return [attempt for attempt in self._attempts.values() if not attempt.over.is_set()]

    @property
    def begun(self) -> List[HeldJob]:
        """Those that do not wait behind another."""
        return [attempt for attempt in self.running if attempt.begun]

    def service(self, job: str, lease: int) -> Optional[Hosted]:
        """The service that is held under a lease, if one is."""
        held = self._attempts.get((job, lease))
        return held if isinstance(held, Hosted) else None

    async def where(self, job: str, lease: int) -> Optional[Tuple[str, int]]:
        """Where the service that is held under a lease listens, while it does."""
        held = self.service(job, lease)
        return None if held is None else await held.listens()

    def drain(self) -> None:
        """This worker takes nothing new: what waits here goes elsewhere, and so do its services, which would
        never end."""
        self.lines.give_back("the worker takes nothing new")
        for attempt in self.running:
            if isinstance(attempt, Hosted):
                attempt.stop("stopped")

    def hello_lines(self, rode_outage: bool) -> List[Dict[str, Any]]:
        """What `Hello` says is held."""
        return [
            reports.held(key not in self._attempts or self._attempts[key].ended, rode_outage)
            for key, reports in self._outbox.items()
        ]

    def behind(self) -> List[str]:
        """The jobs of which something is still to be recorded."""
        return [job for (job, _), reports in self._outbox.items() if reports.behind]

    def resume(self, lines: List[Dict[str, Any]]) -> None:
        """Go on where the server's record of each held job ends."""
        for reports in self._outbox.values():
            reports.rewind({})
        self.turns.begin_again()
        for line in lines:
            key = (str(line["job"]), int(line["lease"]))
            if key not in self._outbox:
                continue
            if line.get("fenced"):
                self._fence(key, "its lease is over")
                continue
            self._outbox[key].rewind({str(k): int(v) for k, v in line["recorded"].items()})
            self._let_go_if_settled(key)
            attempt = self._attempts.get(key)
            if attempt is not None:
                attempt.ask_again()
                if line.get("cancelling"):
                    attempt.stop("cancelled")
        self._inquiries.ask_again()
        self.disk.say()
        self.wake()

    def expire(self, strict_only: bool) -> None:
        """The lease has run out: what runs under it is dead, or will be at once."""
        for attempt in self.running:
            if attempt.strict or not strict_only:
                attempt.end_now("lease")

    def close(self) -> None:
        """Leave the rest for the next agent."""
        self.afterwards.close()
        self._noted.close()
        self._spares.close()
        for reports in self._outbox.values():
            reports.close()

    # ------------------------------------------------------------ what an attempt needs

    def send(self, message: Any) -> None:
        """Send a control message, if there is a session."""
        if self.session is not None:
            self.session.send(message)

    def wake(self) -> None:
        """There may be something to report."""
        if self.session is not None:
            self.session.wake()

    def wake_now(self, attempt: HeldJob) -> None:
        """An attempt has something to report, and somebody waits for it."""
        if self.session is not None:
            key = attempt.assign.job, attempt.assign.lease
            self.session.wake_now(partial(self.turns.next_of, key))

    def flush_later(self, channel: Channel) -> None:
        """It holds what came from the server; more may have come with that."""
        if channel not in self._holding:
            self._holding.append(channel)

    def flush(self) -> None:
        """All that came from the server together has been dealt with."""
        holding, self._holding = self._holding, []
        for channel in holding:
            channel.flush()

    def speaks(self, attempt: HeldJob) -> None:
        """It may have something to report from now on; what waits behind another has not."""
        self.turns.join((attempt.assign.job, attempt.assign.lease))

    def wake_soon(self) -> None:
        """There is something to report, and more to come in a moment."""
        self._waking.within(_SOON_S)

    def attempt_over(self, attempt: HeldJob) -> None:
        """The attempt has no engine any more; its reports are held until they are recorded."""
        if attempt.assign.kind not in (IMPORT, SERVICE) and attempt.reports.end[0] != RETURNED:
            self.afterwards.do(self.tallies.ended, attempt.assign.flow, *attempt.reports.end, wall_now())
        self._let_go_if_settled((attempt.assign.job, attempt.assign.lease))
        self._settled()

    def _lost(self, key: JobKey, reports: Reports) -> None:
        _log.error("job %s: a value it had saved is no longer on this disk", key[0])
        reports.forget_rest()
        attempt = self._attempts.get(key)
        if attempt is not None:
            attempt.end_now("lost_value")

    # ------------------------------------------------------------ what the server says

    def _assign(self, message: Assign) -> None:
        key = (message.job, message.lease)
        if not _NAME.match(message.job):
            raise ProtocolViolation(f"{message.job[:80]!r} is no id of a job")
        known = self._outbox.get(key)
        if known is not None:
            self.send(Accepted(message.job, message.lease, known.started_at))
            return
        before = self._latest.get(message.job)
        older = [before] if before is not None and not before.over.is_set() else []
        for attempt in older:
            if not attempt.reports.sealed:  # else it has its result, and its engine is about to be free
                self._fence((message.job, attempt.assign.lease), "it came again under a newer lease")
        attempt = Hosted(self, message) if message.kind == SERVICE else Attempt(self, message)
        try:
            attempt.reports.create(self._spares)
        except OSError as error:
            _log.error("cannot accept job %s: %s", message.job, error)
            attempt.reports.delete()
            self.lines.forget(message)
            self.disk.give_back(message, error)
            return
        self._attempts[key] = self._latest[message.job] = attempt
        self._outbox[key] = attempt.reports
        self.turns.wait(key)
        self._confirmations.expect(key, self.times.handoff_s)
        attempt.start(older)
        self._noted.info(f"run {message.job} ({message.flow}, lease {message.lease})")
        self.afterwards.do(self._noted.say)
        self.afterwards.do(self._fill_spares)

    def _fill_spares(self) -> None:
        """Not while jobs wait behind others: to make a file with its name costs less than both steps do."""
        if not self.lines.followed:
            self._spares.fill()

    def _recall(self, message: Recall) -> None:
        attempt = self._attempts.get((message.job, message.lease))
        if isinstance(attempt, Attempt):
            attempt.recall()

    def _cancel(self, message: Cancel) -> None:
        attempt = self._attempts.get((message.job, message.lease))
        if attempt is not None:
            _log.info("cancel %s (%s)", message.job, message.reason)
            attempt.stop(message.reason if message.reason == "timeout" else "cancelled")

    def _ack(self, message: Ack) -> None:
        if message.job is None or message.lease is None or message.source is None or message.seq is None:
            raise ProtocolViolation("an acknowledgement of nothing")
        key = (message.job, message.lease)
        reports = self._outbox.get(key)
        if reports is None:
            return
        attempt = self._attempts.get(key)
        if attempt is not None:
            attempt.recorded(message.source, message.seq)
        else:
            reports.acknowledge(message.source, message.seq)
        self._let_go_if_settled(key)
        if reports.unsent:
            self.wake()

    def _reply(self, message: Reply) -> None:
        if self._inquiries.answered(message):
            return
        attempt = self._attempts.get((message.job, message.lease))
        if attempt is not None:
            attempt.reply(message)

    def _outcome(self, message: Outcome) -> None:
        attempt = self._attempts.get((message.job, message.lease))
        if attempt is not None:
            attempt.outcome(message)

    def _proceed(self, message: Proceed) -> None:
        attempt = self._attempts.get((message.job, message.lease))
        if attempt is not None:
            attempt.proceed(message)

    def _fenced(self, message: Fenced) -> None:
        self._fence((message.job, message.lease), message.reason)

    # ------------------------------------------------------------ inside

    def _let_go_if_settled(self, key: JobKey) -> None:
        reports = self._outbox.get(key)
        attempt = self._attempts.get(key)
        if reports is not None and (attempt is None or attempt.over.is_set()) and reports.settled:
            reports.gone = True
            self.afterwards.do(reports.delete, self._spares if attempt and attempt.left_in_order else None)
            self._let_go(key)

    def _fence(self, key: JobKey, why: str) -> None:
        reports = self._outbox.get(key)
        if reports is None:
            return
        _log.warning("job %s is not ours any more: %s", key[0], why)
        attempt = self._attempts.get(key)
        if attempt is not None:
            attempt.fence()
        reports.delete()
        self._inquiries.forget(Claim(*key))
        self._let_go(key)

    def _let_go(self, key: JobKey) -> None:
        reports = self._outbox.pop(key)
        self._confirmations.said(key)
        self.turns.leave(key)
        attempt = self._attempts.get(key)
        if attempt is not None and not attempt.over.is_set():
            self.background(self._forget_when_over(key, attempt))
        else:
            self._forget(key)
            self._leavings.add(reports.outgoing)
            self.afterwards.do(self._leavings.clear)
        self._settled()

    async def _forget_when_over(self, key: JobKey, attempt: HeldJob) -> None:
        await attempt.over.wait()
        self._forget(key)
        self._leavings.remove(attempt.reports.outgoing)
        self._settled()

    def _forget(self, key: JobKey) -> None:
        attempt = self._attempts.pop(key, None)
        if attempt is not None and self._latest.get(key[0]) is attempt:
            del self._latest[key[0]]
