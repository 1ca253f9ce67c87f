"""What is under way or was: runs, jobs, attempts, calls, and what they leave."""

from __future__ import annotations

from dataclasses import dataclass

from .asking import Ask, JobSettings
from .names import Json


@dataclass(frozen=True, slots=True)
class Run:
    """One logical execution of a flow. ``params`` is canonical JSON text; ``origin`` is server or script.

    ``retry_of`` is the ended run that a person retried; ``sweep`` groups runs that were started together;
    ``host`` is the machine it is on, or was on last; ``progress`` is what it said last, of its flow's own.

    A flow that is called inside of a run has a run too: ``parent`` called it, ``root`` is the one whose job
    it goes on under, ``key`` its call's key there, ``called`` what its hooks need.
    """

    id: str
    flow: str
    state: str
    reason: str
    message: str
    params: str
    created_at: float
    project: str = "default"
    origin: str = "server"
    bundle: str = ""
    fingerprint: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    worker: str | None = None
    attempt: int = 0
    result: Json | None = None
    error: Json | None = None
    idempotency_key: str | None = None
    retry_of: str | None = None
    sweep: str | None = None
    schedule: str | None = None
    scheduled_for: float | None = None
    host: str = ""
    name: str = ""
    progress: Json | None = None
    parent: str | None = None
    root: str | None = None
    key: str = ""
    called: Json | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """What is queued, placed and leased. ``kind`` is run, call, hook or service; ``key`` that of a call.

    ``depth`` counts the calls that it is within. ``queued_at`` is when it came to the queue last,
    ``last_worker`` who held it before. ``devices`` are its worker's GPUs that it was given. ``blocked`` is
    "blocked" while it waits for placed calls alone, "unblocked" from their end until it may go on, which its
    engine is told by ``block``, the number of that wait; else empty.

    ``nested`` names the flow, called inside of the run, that it belongs to or is: ``key``, ``flow``, ``id``.
    ``behind`` is set where it shares a slot with jobs that were handed over before it, and begins after them:
    the lease that the slot was taken under. ``leased_at`` is when it was handed over last, ``checkout`` the
    branch and commit of the worker's own code then, where it runs in a checkout.
    """

    id: str
    run: str
    kind: str
    state: str
    flow: str
    entry: str
    args: Json
    bundle: str
    ask: Ask
    settings: JobSettings
    age_at: float
    created_at: float
    key: str = ""
    name: str = ""
    priority: int = 0
    not_before: float = 0.0
    lease: int | None = None
    worker: str | None = None
    attempt: int = 0
    started_at: float | None = None
    cancelling: bool = False
    retries_used: int = 0
    crashes: int = 0
    handoffs_failed: int = 0
    parent_job: str | None = None
    nested: Json | None = None
    depth: int = 0
    queued_at: float = 0.0
    last_worker: str | None = None
    devices: tuple[str, ...] = ()
    blocked: str = ""
    block: int = 0
    fingerprint: str = ""
    git: str = ""
    behind: int | None = None
    leased_at: float = 0.0
    checkout: str = ""

    @property
    def line(self) -> int:
        """Which slot it has on its worker: those with the same number take one together."""
        return self.behind or self.lease or 0


@dataclass(frozen=True, slots=True)
class Attempt:
    """One hand-off of a job. ``outcome`` is empty while it is under way.

    ``environment`` is the digest of what was installed for the engine, ``git`` the branch and commit of the
    code: the worker's own where it runs in a checkout.
    """

    lease: int
    job: str
    run: str
    number: int
    worker: str
    leased_at: float
    started_at: float | None = None
    ended_at: float | None = None
    outcome: str = ""
    reason: str = ""
    message: str = ""
    host: str = ""
    python: str = ""
    pid: int | None = None
    overlap_possible: bool = False
    fingerprint: str = ""
    git: str = ""
    environment: str = ""


@dataclass(frozen=True, slots=True)
class TaskRun:
    """One task call inside a run, known by its checkpoint key; ``number`` is its place in the run.

    ``job`` is the job whose engine made the call; ``placed`` the job of its own that a placed call has.
    ``seeded``: the outcome was taken over from the run that this one retries. ``needs`` are the keys of the
    calls whose results it took or waited for. ``nested`` is the key of the innermost flow called inside of
    the run that it belongs to, and ``flow_run`` the run of the call if it is a flow itself.
    """

    run: str
    key: str
    number: int
    name: str
    state: str
    scope: str = ""
    index: int | None = None
    attempts: int = 0
    worker: str | None = None
    started_at: float | None = None
    ended_at: float | None = None
    kept: bool = True
    value: Json | None = None
    error: Json | None = None
    job: str | None = None
    placed: str | None = None
    seeded: bool = False
    needs: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None
    progress: Json | None = None
    nested: str | None = None
    flow_run: str | None = None


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a run's log. ``number`` orders the lines of a run as they were recorded."""

    number: int
    at: float
    text: str
    stream: str
    level: str
    task: str | None
    attempt: int


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One point: ``values`` maps the names of series to numbers."""

    number: int
    at: float
    values: dict[str, float]
    task: str | None


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file a run saved."""

    id: int
    run: str
    name: str
    digest: str
    size: int
    media_type: str
    created_at: float
    task: str | None = None
    nested: str | None = None
