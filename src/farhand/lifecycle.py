"""What state follows what, and what the end of an attempt means. Nothing else decides a transition.

Theory
------
A *run* is what a person asked for; a *job* is its place in the queue; an *attempt* is one hand-off of
the job to an engine, under one lease. Attempts end in many ways, and most of them are not the end of
the run: an engine that died, a worker that was lost and a retried exception all lead back to `queued`,
under the same ids. So there are two things to decide, and they are kept apart:

- the **tables** below say which moves exist at all. A terminal state has no way out. `advance` applies
  them; every write is also a compare-and-set in the store, so of two movers one loses.
- `conclude` says which move the end of an attempt asks for: it looks at how the attempt ended and at
  what the job has used of its `retries` (exceptions) and `crash_retries` (engines that died after user
  code had begun), and answers with a `Verdict`. What is nobody's fault costs neither.

The diagram in docs/lifecycle.md is generated from these tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .errors import IllegalTransition
from .model import AT_ONCE, RetryDelay
from .retrying import retry_delay_s

Table = Mapping[str, frozenset[str]]


def _table(**moves: str) -> Table:
    return {state: frozenset(after.split()) for state, after in moves.items()}


RUN: Table = _table(
    scheduled="queued cancelled skipped",
    queued="starting cancelled failed skipped",
    starting="running queued cancelling cancelled completed failed crashed",
    running="completed failed crashed waiting queued cancelling cancelled",
    waiting="queued cancelled failed",
    cancelling="cancelled completed",
    completed="",
    failed="",
    cancelled="",
    crashed="",
    skipped="",
)
"""A run. `cancelling → completed` is work that was finished before the cancellation reached it;
`running → cancelled` is user code that ended itself so."""

RUN_INITIAL = frozenset({"scheduled", "queued", "running"})
"""Where a run may begin; `running` is a script, or a flow called inside of a run: neither is ever queued."""

JOB: Table = _table(
    queued="leased ended",
    leased="running queued ended",
    running="queued parked ended",
    parked="queued ended",
    ended="",
)
"""A job. `leased` is handed over, `running` is user code begun."""

TASK: Table = _table(
    queued="running completed failed cancelled crashed skipped",
    running="queued completed failed cancelled crashed",
    completed="",
    failed="running queued",
    cancelled="running queued",
    crashed="running queued",
    skipped="running queued",
)
"""A task run. A later attempt of its run executes again what did not complete. `skipped` is a node of a
declared flow that was not run, since one that it takes from did not end well."""

MACHINE: Table = _table(
    asked="pending running attached leaving ended",
    pending="running attached leaving ended",
    running="pending attached leaving ended",
    attached="pending running leaving ended",
    leaving="ended",
    ended="",
)
"""A machine that a provisioner was asked for. `asked` is not known to have been accepted, `attached` has its
worker online; a scheduler may put one back into its queue. `leaving` is to be given back."""

SERVICE: Table = _table(
    stopped="degraded",
    degraded="healthy down stopped",
    healthy="degraded down stopped",
    down="degraded stopped",
)
"""A service. It has no last state: whoever stopped it, or sees that it is down, can start it again."""

TABLES: Mapping[str, Table] = {
    "run": RUN,
    "job": JOB,
    "task": TASK,
    "machine": MACHINE,
    "service": SERVICE,
}


def is_terminal(table: Table, state: str) -> bool:
    """Whether nothing follows ``state``."""
    return not table[state]


def terminal_states(table: Table) -> frozenset[str]:
    """The states that nothing follows."""
    return frozenset(state for state, after in table.items() if not after)


def may_advance(table: Table, state: str, to: str) -> bool:
    """Whether ``to`` may follow ``state``."""
    return to in table[state]


def advance(table: Table, state: str, to: str) -> str:
    """``to``, when it may follow ``state``; raises `IllegalTransition` otherwise."""
    if not may_advance(table, state, to):
        raise IllegalTransition(f"cannot go from {state} to {to}", state=state, to=to)
    return to


def diagram(table: Table) -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2"]
    for state, after in table.items():
        if not after:
            lines.append(f"    {state} --> [*]")
        lines.extend(f"    {state} --> {to}" for to in sorted(after))
    return "\n".join(lines)


# ---------------------------------------------------------------- the end of an attempt


@dataclass(frozen=True, slots=True)
class Standing:
    """What counts when an attempt ends: the job's budget, what it has used, and what was asked of it.

    ``draw`` (0 to 1) is the chance in a retry delay's jitter, drawn by the caller. ``machines_lost``: how
    many machines of provisioners the job has lost before; None where its worker is no such machine.
    """

    retries: int = 0
    retries_used: int = 0
    retry_delay: RetryDelay = AT_ONCE
    draw: float = 0.5
    crash_retries: int = 3
    crashes: int = 0
    handoffs_failed: int = 0
    started: bool = False
    cancelling: bool = False
    machines_lost: int | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """How an attempt ended.

    ``state``: completed, failed or cancelled when user code ended; crashed (the engine died), timeout,
    silence, stopped (drain, server stop, preemption), not_started (the hand-off failed), unfit (that machine
    cannot import the code or load the arguments), lost (the lease ran out, the worker went away) or returned
    (it waited on a slot behind another, and was given back before it began) when it did not. A failure may be
    one that no retry changes.
    """

    state: str
    reason: str = ""
    message: str = ""
    retryable: bool = True


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows: a terminal ``state``, or ``queued`` again after ``delay_s``, with the budget used."""

    state: str
    reason: str
    message: str
    delay_s: float = 0.0
    retries_used: int = 0
    crashes: int = 0
    handoffs_failed: int = 0

    @property
    def requeued(self) -> bool:
        """Whether the job goes back to the queue."""
        return self.state == "queued"


MACHINES_LOST_MAX = 5
"""So many lost machines from provisioners cost a job nothing; what kills its machine each time has to end."""

RETURNED = "returned"
"""How what was handed over to wait behind another ends, when it is given back before it began."""

SENT_AHEAD = frozenset({"run", "call"})
"""The kinds of jobs that may be handed over to wait on a slot behind their like."""

HANDOFF_DELAY_S_MAX = 60.0
_HANDOFF_DELAY_S = 0.25
_LIMITS = ("timeout", "silence")


def conclude(standing: Standing, ending: Ending) -> Verdict:
    """Decide what the end of an attempt means for its run (or placed call)."""
    if ending.state == "completed":
        return _end(standing, "completed", ending.reason or "completed", ending.message)
    if standing.cancelling:
        return _end(standing, "cancelled", "cancelled", ending.message or "cancelled on request")
    if ending.state in ("failed", *_LIMITS):
        return _after_failure(standing, ending)
    if ending.state == "cancelled":
        return _end(standing, "cancelled", ending.reason or "cancelled", ending.message)
    if ending.state in ("crashed", "lost") and standing.started:
        return _after_crash(standing, ending)
    return _after_handoff(standing, ending)


def _end(standing: Standing, state: str, reason: str, message: str) -> Verdict:
    return Verdict(
        state,
        reason,
        message,
        retries_used=standing.retries_used,
        crashes=standing.crashes,
        handoffs_failed=standing.handoffs_failed,
    )


def _after_failure(standing: Standing, ending: Ending) -> Verdict:
    reason = ending.state if ending.state in _LIMITS else ending.reason or "exception"
    if standing.retries_used >= standing.retries or not ending.retryable:
        return _end(standing, "failed", reason, ending.message)
    return Verdict(
        "queued",
        "retrying",
        f"retry {standing.retries_used + 1} of {standing.retries} after: {ending.message}",
        delay_s=_retry_delay_s(standing),
        retries_used=standing.retries_used + 1,
        crashes=standing.crashes,
    )


def _retry_delay_s(standing: Standing) -> float:
    delay = standing.retry_delay
    return retry_delay_s(
        delay.seconds, standing.retries_used + 1, delay.factor, delay.cap_s, delay.jitter, standing.draw
    )


def _after_crash(standing: Standing, ending: Ending) -> Verdict:
    reason = "worker_lost" if ending.state == "lost" else ending.reason or "engine_died"
    if ending.state == "lost" and _costs_nothing(standing):
        told = f"lost machine {(standing.machines_lost or 0) + 1} of {MACHINES_LOST_MAX} that cost nothing"
        return _again(standing, reason, f"{told}: {ending.message}", standing.crashes)
    if standing.crashes >= standing.crash_retries:
        bare = reason == "engine_died" and ending.message.startswith(("exit ", "signal "))
        return _end(
            standing, "crashed", reason, f"the engine ended: {ending.message}" if bare else ending.message
        )
    crashes = standing.crashes + 1
    message = f"crash {crashes} of {standing.crash_retries} allowed: {ending.message}"
    return _again(standing, reason, message, crashes)


def _costs_nothing(standing: Standing) -> bool:
    """Whether a provisioner's machine was lost. Whoever allows no crash wants no second attempt then, too."""
    lost = standing.machines_lost
    return lost is not None and lost < MACHINES_LOST_MAX and standing.crash_retries > 0


def _again(standing: Standing, reason: str, message: str, crashes: int) -> Verdict:
    return Verdict("queued", reason, message, retries_used=standing.retries_used, crashes=crashes)


def _after_handoff(standing: Standing, ending: Ending) -> Verdict:
    """Nobody's fault: queued again at no cost, slower each time user code does not even begin."""
    failed = standing.handoffs_failed + 1
    delay_s = 0.0 if failed <= 1 else min(HANDOFF_DELAY_S_MAX, _HANDOFF_DELAY_S * 2 ** min(failed - 2, 16))
    if ending.state in ("stopped", "lost", "unfit", RETURNED):
        failed, delay_s = standing.handoffs_failed, 0.0
    return Verdict(
        "queued",
        ending.reason or ending.state,
        ending.message,
        delay_s=delay_s,
        retries_used=standing.retries_used,
        crashes=standing.crashes,
        handoffs_failed=failed,
    )


# ---------------------------------------------------------------- the end of a service's process


STARTS_MAX = 3
"""So many starts in a row may never get healthy."""

RESTART_S, RESTART_S_MAX = 1.0, 60.0
STEADY_S = 60.0
"""A service that was healthy for so long is restarted as soon as at first."""


@dataclass(frozen=True, slots=True)
class ServiceStanding:
    """What counts when a service's process ends. ``healthy_s``: since when it was healthy, None if never."""

    starts: int = 0
    restarts: int = 0
    healthy_s: float | None = None
    cancelling: bool = False


@dataclass(frozen=True, slots=True)
class ServiceVerdict:
    """What follows: ``degraded`` is another start after ``delay_s``; ``down`` and ``stopped`` are none."""

    state: str
    reason: str
    message: str
    delay_s: float = 0.0
    starts: int = 0
    restarts: int = 0


def conclude_service(standing: ServiceStanding, ending: Ending) -> ServiceVerdict:
    """Decide what the end of one start of a service means for it.

    What is nobody's fault, such as a worker that was lost, costs it nothing. A service that ended after it
    was healthy is restarted, slower each time; one that never got healthy is given up after some starts.
    """
    if standing.cancelling:
        return ServiceVerdict("stopped", "stopped", "the service was stopped")
    if ending.state in ("stopped", "lost", "cancelled") or ending.reason == "handoff_failed":
        message = ending.message or "its worker has left"
        return ServiceVerdict("degraded", "no_worker", message, 0.0, standing.starts, standing.restarts)
    starts = 0 if standing.healthy_s is not None else standing.starts + 1
    if starts >= STARTS_MAX:
        message = f"{starts} starts in a row never got healthy; the last: {ending.message}"
        return ServiceVerdict("down", "never_healthy", message, 0.0, starts, standing.restarts)
    restarts = 0 if (standing.healthy_s or 0.0) >= STEADY_S else standing.restarts
    delay_s = min(RESTART_S_MAX, RESTART_S * 2 ** min(restarts, 16))
    return ServiceVerdict("degraded", "restarting", ending.message, delay_s, starts, restarts + 1)
