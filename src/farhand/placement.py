"""Where a job may run: (job, workers, now) → the worker, or why none. Pure; people are shown the answer.

A worker can be refused for good (it lacks a label, it is too small, it is not the one asked for) or for now
(it is full, lost, draining, reserved). `prefer` falls back to the server only when every attached worker is
refused for good: busy means wait, and a worker that is lost for a moment still counts.

Descendants of what runs on a worker pass a drain and a reservation there: what they wait behind waits for
them. A job whose missing amounts are held by its own blocked ancestors (or by who reads along and waits for
what these yield) can never have them: that is a reason
for good, and where no other worker is left it is the job's end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from .model import LOCAL_WORKER, Ask
from .resources import NOTHING, Amounts, Capacity, Lack, blocked_bound, lacks, need

AFFINITY_S = 10.0
"""So long a job that comes back waits for the worker it was on, if that is there."""

HELD_BY_ANCESTORS = "held_by_ancestors"
_LISTED = 8
_OTHER_THAN = {
    "worker": "is the server itself, and it asks for another machine",
    "server": "is not the server itself",
}
"""What is against a candidate whose kind is not the one asked for."""
_UNITS = {"slots": "slots", "cpus": "cpus", "gpus": "gpus", "ram_mb": "MB of ram"}


@dataclass(frozen=True, slots=True)
class Kin:
    """An ancestor of a job, live on a worker, with what it keeps there while it is blocked.

    ``parent`` is the job above it, live or not.
    """

    job: str
    run: str
    name: str
    worker: str
    blocked: bool
    keeps: Amounts = NOTHING
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """A queued job as placement sees it. ``earlier`` is the worker it was on, preferred until a moment.

    ``beside``: jobs of its run that read along, where nothing of that run goes on before this job has ended.
    """

    ask: Ask
    job: str = ""
    priority: int = 0
    depth: int = 0
    earlier: str = ""
    earlier_until: float = 0.0
    kin: tuple[Kin, ...] = ()
    beside: tuple[Kin, ...] = ()


@dataclass(frozen=True, slots=True)
class Reservation:
    """The job that a worker's next free amounts are for."""

    job: str
    priority: int
    needs: Amounts


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one worker was not taken, with the numbers behind it. ``for_good``: no wait changes it."""

    worker: str
    code: str
    message: str
    for_good: bool
    numbers: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True)
class Candidate:
    """A worker as placement sees it. ``in_use`` is taken or promised; ``blocked`` the depths of what is;
    ``services`` are kept there, each with what it takes of that until it is stopped; ``against`` is what the
    code of the job in question says against it (see `farhand.suitability`); ``trouble`` is why it can take
    nothing now, as it says itself."""

    name: str
    labels: frozenset[str]
    capacity: Capacity
    in_use: Amounts = NOTHING
    state: str = "online"
    draining: bool = False
    blocked: tuple[int, ...] = ()
    reserved: Reservation | None = None
    services: tuple[tuple[str, Amounts], ...] = ()
    against: Refusal | None = None
    trouble: str = ""

    @property
    def room(self) -> int:
        """Free slots."""
        return self.capacity.slots - self.in_use.slots


@dataclass(frozen=True, slots=True)
class Placement:
    """The worker to take, or None and why each was refused, in one sentence as well.

    ``fell_back``: it is the server, though that lacks what was preferred. ``hopeless``: what is missing is
    held by the job's own ancestors, everywhere. ``away``: workers that are offline, and could take it if they
    came back; nothing is decided by them.
    """

    worker: str | None
    refusals: tuple[Refusal, ...] = ()
    message: str = ""
    fell_back: bool = False
    hopeless: bool = False
    away: tuple[Refusal, ...] = ()


def place(wanted: Wanted, candidates: Sequence[Candidate], now: float = 0.0) -> Placement:
    """Choose a worker for a job."""
    ask = wanted.ask
    refusals = [(candidate, refuse(wanted, candidate)) for candidate in candidates]
    refusals = _held_to_earlier(wanted, refusals, now)
    chosen = _best(ask, [candidate for candidate, refusal in refusals if refusal is None])
    if chosen is not None:
        return Placement(chosen.name)
    reasons = tuple(refusal for _, refusal in refusals if refusal is not None)
    if _falls_back(ask, reasons):
        server = next((c for c in candidates if c.name == LOCAL_WORKER), None)
        refusal = None if server is None else refuse_server(wanted, server)
        if server is not None and refusal is None:
            return Placement(server.name, fell_back=True)
        if refusal is not None:
            reasons = (*(r for r in reasons if r.worker != LOCAL_WORKER), refusal)
    hopeless = all(r.for_good for r in reasons) and any(r.code == HELD_BY_ANCESTORS for r in reasons)
    return Placement(None, reasons, explain(ask, candidates, reasons), hopeless=hopeless)


def choose(wanted: Wanted, able: Sequence[Candidate], now: float = 0.0) -> Candidate | None:
    """The worker that `place` would choose of those that could ever take the job, without saying why not."""
    if wanted.earlier and now < wanted.earlier_until:
        earlier = next((c for c in able if c.name == wanted.earlier), None)
        if earlier is not None and earlier.state == "online" and not earlier.draining:
            able = [earlier]
    needed = need(wanted.ask)
    fitting = [c for c in able if (c.room > 0 or not needed.slots) and _refuse_now(wanted, c, needed) is None]
    return _best(wanted.ask, fitting)


# ---------------------------------------------------------------- one worker


def refuse(wanted: Wanted, candidate: Candidate) -> Refusal | None:
    """The first reason against a candidate; reasons for good come first."""
    return refuse_ever(wanted.ask, candidate) or _refuse_now(wanted, candidate, need(wanted.ask))


def refuse_server(wanted: Wanted, server: Candidate) -> Refusal | None:
    """The reason against the server as the one to fall back to, which need not have what was preferred."""
    plain = replace(wanted, ask=without_preference(wanted.ask))
    return refuse(plain, server)


def without_preference(ask: Ask) -> Ask:
    """What a job asks of the server when it falls back: neither labels nor GPUs."""
    return replace(ask, labels=(), gpus=None)


def refuse_ever(ask: Ask, candidate: Candidate) -> Refusal | None:
    """The reason for which a candidate can never take a job that asks so, whatever else it does."""
    name = candidate.name
    if not _is_addressed(ask.runs_on, name):
        other = _OTHER_THAN.get(ask.runs_on, f"is not {ask.runs_on}")
        return Refusal(name, "not_asked_for", other, True)
    missing = [label for label in ask.labels if label not in candidate.labels]
    if missing:
        return Refusal(name, "label_missing", f"has no label {', '.join(missing)}", True)
    if candidate.against is not None and candidate.against.for_good:
        return candidate.against
    if candidate.capacity.slots <= 0 and ask.slots:
        return Refusal(name, "no_slots", "has no slots", True)
    small = lacks(need(ask), NOTHING, candidate.capacity)
    if small:
        words = " and ".join(f"{lack.total} {_UNITS[lack.name]}" for lack in small)
        asked = " and ".join(f"{lack.needed}" for lack in small)
        return Refusal(name, "too_small", f"has {words}, it asks for {asked}", True, _numbers(small))
    return None


def _refuse_now(wanted: Wanted, candidate: Candidate, needed: Amounts) -> Refusal | None:
    """The first reason against a candidate as it is now."""
    name = candidate.name
    if candidate.state != "online":
        return Refusal(name, candidate.state, f"is {candidate.state}", candidate.state == "offline")
    if candidate.trouble:
        return Refusal(name, "trouble", f"takes nothing new: {candidate.trouble}", False)
    if candidate.draining and not is_related(wanted, name):
        return Refusal(name, "draining", "is draining", False)
    short = lacks(needed, candidate.in_use, candidate.capacity)
    if short:
        return _held_by_ancestors(wanted, candidate, needed) or _full(candidate, short)
    limit, blocked = blocked_bound(candidate.capacity), candidate.blocked
    count = sum(1 for depth in blocked if depth >= wanted.depth) if blocked else 0
    if count >= limit:
        message = f"has {count} blocked runs, of at most {limit}"
        return Refusal(name, "too_many_blocked", message, False, {"blocked": count, "limit": limit})
    reserved = candidate.reserved is not None and _is_in_the_way(wanted, candidate, needed)
    if reserved and not is_related(wanted, name):
        return Refusal(name, "reserved", "keeps what it has for a job that has waited long", False)
    return candidate.against


def is_related(wanted: Wanted, worker: str) -> bool:
    """Whether an ancestor of the job is live on a worker."""
    return any(kin.worker == worker for kin in wanted.kin)


def _full(candidate: Candidate, short: tuple[Lack, ...]) -> Refusal:
    """What is short now; what services keep is told first, since they do not end by themselves as runs do."""
    kept = {lack.name: _kept_by_services(candidate, lack) for lack in short}
    first = max(short, key=lambda lack: kept[lack.name] != "")
    if first.name == "slots":
        message = f"has {first.total - first.free} of {first.total} slots taken"
        return Refusal(candidate.name, "no_slot", message, False, _numbers(short))
    free = f"has {max(0, first.free)} of {first.total} {_UNITS[first.name]} free{kept[first.name]}"
    message = f"{free}, it asks for {first.needed}"
    return Refusal(candidate.name, f"no_{first.name}", message, False, _numbers(short))


def _kept_by_services(candidate: Candidate, lack: Lack) -> str:
    found = [(name, amount) for name, of in candidate.services if (amount := getattr(of, lack.name))]
    names, amount = ", ".join(name for name, _ in found[:_LISTED]), sum(amount for _, amount in found)
    if len(found) > 1:
        return f" (the services {names} keep {amount} until they are stopped)"
    return f" (the service {names} keeps {amount} until it is stopped)" if found else ""


def _held_by_ancestors(wanted: Wanted, candidate: Candidate, needed: Amounts) -> Refusal | None:
    """What stays short when all others have ended: blocked ancestors keep it until this very job ends, and
    so do those that wait for what an ancestor yields after it."""
    kin = [kin for kin in (*wanted.kin, *wanted.beside) if kin.worker == candidate.name and kin.blocked]
    kept = sum((one.keeps for one in kin), NOTHING)
    for lack in lacks(needed, kept, candidate.capacity):
        holding = [one for one in kin if getattr(one.keeps, lack.name)]
        holders = ", ".join(f"{one.name} ({one.run})" for one in holding)
        reads = any(one in wanted.beside for one in holding)
        waits_for = "a stream that goes on only after this very call" if reads else "this very call"
        unit = _UNITS[lack.name]
        message = (
            f"has {lack.total} {unit}, of which {lack.total - lack.free} are held by {holders}, which waits "
            f"for {waits_for}; it asks for {lack.needed}"
        )
        return Refusal(candidate.name, HELD_BY_ANCESTORS, message, True, _numbers((lack,)))
    return None


def _is_in_the_way(wanted: Wanted, candidate: Candidate, needed: Amounts) -> bool:
    """Whether the job would take of what is reserved: amounts that would be short for the one that waits."""
    reserved = candidate.reserved
    if reserved is None or reserved.job == wanted.job or wanted.priority > reserved.priority:
        return False
    short = lacks(reserved.needs, candidate.in_use + needed, candidate.capacity)
    return any(getattr(needed, lack.name) for lack in short)


def _numbers(short: tuple[Lack, ...]) -> dict[str, float]:
    return {
        f"{lack.name}_{what}": value
        for lack in short
        for what, value in (("asked", lack.needed), ("free", lack.free), ("total", lack.total))
    }


def _is_addressed(runs_on: str, name: str) -> bool:
    if runs_on == "any":
        return True
    if runs_on == "worker":
        return name != LOCAL_WORKER
    return name == runs_on


# ---------------------------------------------------------------- between workers


def _held_to_earlier(
    wanted: Wanted, refusals: list[tuple[Candidate, Refusal | None]], now: float
) -> list[tuple[Candidate, Refusal | None]]:
    """While it prefers the worker it was on, and that could take it, the others are refused."""
    if not wanted.earlier or now >= wanted.earlier_until:
        return refusals
    earlier = next((c for c, _ in refusals if c.name == wanted.earlier), None)
    if earlier is None or earlier.state != "online" or earlier.draining:
        return refusals
    if refuse_ever(wanted.ask, earlier) is not None:
        return refusals
    left_s = wanted.earlier_until - now
    message = f"comes after {earlier.name}, where it was, for {left_s:.0f} s more"

    def held(candidate: Candidate, refusal: Refusal | None) -> Refusal | None:
        if candidate is earlier or (refusal is not None and refusal.for_good):
            return refusal
        return Refusal(candidate.name, "prefers_earlier", message, False, {"left_s": left_s})

    return [(candidate, held(candidate, refusal)) for candidate, refusal in refusals]


def _best(ask: Ask, fitting: Sequence[Candidate]) -> Candidate | None:
    """The server first for jobs that ask for no device, then the worker with most room."""
    if len(fitting) < 2:
        return fitting[0] if fitting else None
    return max(fitting, key=lambda candidate: rank(ask, candidate))


def rank(ask: Ask, candidate: Candidate) -> tuple[bool, int, int]:
    """What is preferred among workers that fit: the higher."""
    plain = not ask.labels and not ask.gpus
    cpus = candidate.capacity.cpus
    return (
        plain and candidate.name == LOCAL_WORKER,
        candidate.room,
        0 if cpus is None else cpus - candidate.in_use.cpus,
    )


def _falls_back(ask: Ask, reasons: Sequence[Refusal]) -> bool:
    elsewhere = [reason for reason in reasons if reason.worker != LOCAL_WORKER]
    return ask.policy == "prefer" and ask.runs_on == "any" and all(reason.for_good for reason in elsewhere)


def soonest(wanted: Wanted, candidates: Sequence[Candidate]) -> str | None:
    """The worker where a job that has waited long fits soonest: of those that could, the one least short.

    A worker that is reserved for another job already, lost or draining is none.
    """
    needed = need(wanted.ask)
    open_to_it = [
        candidate
        for candidate in candidates
        if candidate.state == "online"
        and not candidate.draining
        and (candidate.reserved is None or candidate.reserved.priority < wanted.priority)
        and refuse_ever(wanted.ask, candidate) is None
    ]
    return min(open_to_it, key=lambda c: (_shortage(needed, c), c.name)).name if open_to_it else None


def _shortage(needed: Amounts, candidate: Candidate) -> float:
    """How much is short, as the largest share of what there is."""
    short = lacks(needed, candidate.in_use, candidate.capacity)
    return max(((lack.needed - lack.free) / lack.total for lack in short), default=0.0)


# ---------------------------------------------------------------- in words


def explain(ask: Ask, candidates: Sequence[Candidate], reasons: Sequence[Refusal]) -> str:
    """One sentence on what the job waits for."""
    wanted = asked(ask)
    if not candidates:
        return f"waits for {wanted}; no worker is attached"
    listed = "; ".join(f"{reason.worker} {reason.message}" for reason in reasons[:_LISTED])
    if all(reason.for_good for reason in reasons):
        return f"waits for {wanted}; no attached worker could ever take it: {listed}"
    return f"waits for {wanted}: {listed}"


def recall(ask: Ask, away: Sequence[tuple[Candidate, str, str]]) -> tuple[Refusal, ...]:
    """The workers that are offline and could take what asks so, each since a moment in words, and with what
    keeps it from coming back, if anything does."""
    fits = f"has label {', '.join(ask.labels)}" if ask.labels else "could take it"
    return tuple(
        Refusal(
            candidate.name,
            "needs_token" if barred else "offline",
            f"{fits} and is offline since {since}" + (f", and {barred}" if barred else ""),
            False,
        )
        for candidate, since, barred in away
        if refuse_ever(ask, candidate) is None
    )


def asked(ask: Ask) -> str:
    """What a job asks for, in words."""
    words = [f"label {', '.join(ask.labels)}"] if ask.labels else []
    for name in ("cpus", "gpus", "ram_mb"):
        amount = getattr(ask, name)
        words += [f"{amount} {_UNITS[name]}"] if amount else []
    wanted = ", ".join(words) or ("a free slot" if ask.slots else "a worker")
    return wanted if ask.runs_on == "any" else f"{wanted} on {ask.runs_on}"
