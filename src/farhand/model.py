"""The records of section "Words": frozen, and the same type from the store to a template.

Moments (``*_at``) are seconds since the epoch, UTC. Values and errors are the encoded forms of
`farhand_worker.protocol` (dicts that the server passes on and never opens).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

NAME_PATTERN = r"[a-z0-9][a-z0-9._-]{0,62}"
RESERVED_NAMES = frozenset({"server", "any", "worker"})
LOCAL_WORKER = "server"
"""The name of the server's own processors."""
SERVICE = "service"
"""The kind of a service's job, and the origin of the row that its jobs and lines belong to."""

DECLARED = "(declared)"
"""The project of flows that were put as documents; no project's own name reads like it."""

Json = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ask:
    """What a job asks of a machine. ``runs_on``: any, server, worker, or a worker's name.

    An amount is None where nothing is asked; ``gpus`` 0 asks to be shown none. A job has the amounts of its
    ``flavor`` from the moment it is made, where it gives none of its own. ``requires_python`` is the
    project's, such as ``>=3.10,<4``. ``slots`` is 0 for what takes none.
    """

    labels: tuple[str, ...] = ()
    policy: str = "require"
    runs_on: str = "any"
    cpus: int | None = None
    gpus: int | None = None
    ram_mb: int | None = None
    flavor: str = ""
    requires_python: str = ""
    slots: int = 1


@dataclass(frozen=True, slots=True)
class Flavor:
    """A named size. An amount is None where the flavor says nothing of it."""

    name: str
    cpus: int | None
    gpus: int | None
    ram_mb: int | None
    updated_at: float = 0.0
    updated_by: str = ""


@dataclass(frozen=True, slots=True)
class RetryDelay:
    """Delays before retries: ``seconds`` first, then the last of them times ``factor``, up to ``cap_s``.

    ``jitter`` is the share by which each may differ.
    """

    seconds: tuple[float, ...] = (0.0,)
    factor: float = 1.0
    cap_s: float | None = None
    jitter: float = 0.0


AT_ONCE = RetryDelay()
"""No delay."""


@dataclass(frozen=True, slots=True)
class Hook:
    """What a flow has called when a run ends in ``state``; ``index`` tells those of one state apart."""

    state: str
    index: int
    name: str


@dataclass(frozen=True, slots=True)
class JobSettings:
    """What a flow or task was decorated with, as far as the queue and the agent need it.

    ``in_order`` is set by a retry with other code or parameters: what it takes over is good only so far.
    ``timeout_words`` and ``silence_words`` are said of a passed limit, where the general words are not meant.
    ``along`` names what it yields that others read while it runs.
    """

    retries: int = 0
    retry_delay: RetryDelay = AT_ONCE
    crash_retries: int = 3
    timeout_s: float | None = None
    silence_timeout_s: float | None = None
    strict_lease: bool = False
    isolated: bool = False
    priority: int | None = None
    max_concurrent: int | None = None
    secrets: tuple[str, ...] = ()
    hooks: tuple[Hook, ...] = ()
    in_order: bool = False
    timeout_words: str = ""
    silence_words: str = ""
    along: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Flow:
    """A flow as inspection found it. ``entry`` is ``module:name`` inside the bundle.

    ``fingerprint`` is the digest of its manifest, a blob of the server; ``git`` is branch and commit of the
    directory it was read from.
    """

    name: str
    project: str
    entry: str
    description: str
    schema: Json
    ask: Ask
    settings: JobSettings
    bundle: str
    fingerprint: str
    present: bool = True
    updated_at: float = 0.0
    tags: tuple[str, ...] = ()
    file: str = ""
    git: str = ""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a declared flow: its document, as it was put, and the code that was made of it.

    ``etag`` is what a later change may name as the state that it is based on.
    """

    flow: str
    number: int
    etag: str
    document: Json
    bundle: str
    fingerprint: str
    created_at: float = 0.0
    created_by: str = ""


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """How a service is run. ``weights`` is a digest; no ``port`` is a free one, no ``health`` no check."""

    command: tuple[str, ...]
    port: int | None = None
    health: str | None = "/health"
    env: dict[str, str] = field(default_factory=dict[str, str])
    weights: str = ""
    stop_s: float = 3.0
    start_s: float = 600.0
    health_timeout_s: float = 3.0


@dataclass(frozen=True, slots=True)
class Service:
    """A server process that is kept on a worker while ``flows`` are offered that need it.

    ``wanted``: nobody has stopped it. ``state``: degraded, healthy, down or stopped, since a moment, for a
    ``reason`` and a sentence. ``starts`` counts those in a row that never got healthy, ``restarts`` those
    since it last was well for a while. ``job`` is that under which it runs or is to run; ``port`` where its
    process listens, on ``worker``; ``tail`` the end of what it wrote before it ended last.
    """

    name: str
    project: str
    flows: tuple[str, ...]
    spec: ServiceSpec
    ask: Ask
    secrets: tuple[str, ...] = ()
    bundle: str = ""
    fingerprint: str = ""
    git: str = ""
    present: bool = True
    wanted: bool = True
    state: str = "stopped"
    reason: str = ""
    message: str = ""
    since: float = 0.0
    healthy_at: float | None = None
    starts: int = 0
    restarts: int = 0
    job: str | None = None
    worker: str | None = None
    port: int | None = None
    tail: str = ""
    created_at: float = 0.0
    updated_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Trouble:
    """A file of a project, or one of its flows, that cannot be offered, and why."""

    file: str
    error: str
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file beside the modules of a project that is too large for its bundle."""

    file: str
    size: int


@dataclass(frozen=True, slots=True)
class Project:
    """A directory of flows as last seen. ``origin`` is served or deployed, ``place`` where it lies."""

    name: str
    origin: str
    place: str
    bundle: str
    size: int
    files: int
    errors: tuple[Trouble, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    updated_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a flow is started by itself. ``spec`` is for `timing.read`, ``params`` is JSON text."""

    id: str
    flow: str
    project: str
    spec: Json
    params: str
    paused: bool = False
    present: bool = True
    since: float = 0.0
    created_at: float = 0.0
    updated_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Fire:
    """One fire time of a schedule and what came of it. ``outcome`` is started or failed."""

    schedule: str
    at: float
    fired_at: float
    outcome: str
    message: str = ""
    run: str | None = None
    late: bool = False
    missed: int = 0


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
    the lease that the slot was taken under.
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


@dataclass(frozen=True, slots=True)
class Worker:
    """A machine's program as the store remembers it. ``state``: online, lost or offline.

    ``environment`` is the digest of what is installed there, seen first at ``environment_at``; ``checkout``
    the directory it runs in, with ``git`` as its branch and commit, where it has one.
    ``drained_by`` is who ordered that it takes nothing new, empty for nobody; ``slots`` what a person set in
    the place of its own ``parallel`` while this instance lives; ``reported`` what else its hello said.
    """

    name: str
    state: str
    labels: tuple[str, ...]
    parallel: int
    instance: str
    host: str
    python: str
    version: str
    boot_id: str = ""
    address: str = ""
    attached_at: float | None = None
    last_seen_at: float | None = None
    environment: str = ""
    environment_at: float | None = None
    checkout: str = ""
    git: str = ""
    jti: str = ""
    protocol: int = 0
    drained_by: str = ""
    slots: int | None = None
    reported: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Invitation:
    """A code that buys one token for the worker ``name``, once; of the code itself only a hash is kept."""

    id: str
    code_hash: str
    name: str
    labels: tuple[str, ...]
    token_s: float
    issued_at: float
    expires_at: float
    used_at: float | None = None
    jti: str | None = None
    address: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine that a provisioner was asked for. ``name`` is that of its worker, and of what the scheduler
    knows it by; ``external`` is the scheduler's own id, empty until that is known.

    ``reason`` is the scheduler's word for its state, or the last thing that went wrong; ``tries`` counts the
    submissions. ``since`` is when it came into its state, ``waits_since`` when it was asked for, or put back
    into the scheduler's queue; ``expires_at`` ends its token.
    """

    name: str
    provisioner: str
    profile: str
    state: str
    labels: tuple[str, ...]
    jti: str
    expires_at: float
    asked_at: float
    since: float
    waits_since: float
    reason: str = ""
    external: str = ""
    tries: int = 0
    attached_at: float | None = None
    ended_at: float | None = None


@dataclass(frozen=True, slots=True)
class Token:
    """A credential as it is listed; the secret itself is not kept."""

    jti: str
    name: str
    role: str
    labels: tuple[str, ...]
    issued_at: float
    expires_at: float
    revoked_at: float | None = None
    last_used_at: float | None = None
    address: str = ""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A change that somebody asked for. ``action`` names it (``cancel_run``), ``subject`` what it was about.

    ``outcome`` is done, refused or failed; ``jti`` is empty for the admin's secret and for consoles that
    were opened by a link.
    """

    id: int
    at: float
    role: str
    actor: str
    jti: str
    address: str
    action: str
    subject: str
    outcome: str
    status: int
    details: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret as it is listed; its value is sealed and never part of a record."""

    name: str
    created_at: float
    updated_at: float
    updated_by: str
    last_read_at: float | None = None


@dataclass(frozen=True, slots=True)
class Variable:
    """A plain value that jobs may read. ``value`` is JSON text."""

    name: str
    value: str
    updated_at: float
    updated_by: str


@dataclass(frozen=True, slots=True)
class Event:
    """An entry of the event log: ``kind`` is dotted, as in ``worker.attached`` or ``run.completed``."""

    id: int
    at: float
    kind: str
    message: str
    run: str | None = None
    worker: str | None = None
    details: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A page of records and the cursor of the next one (None at the end)."""

    items: list[T]
    next: str | None = None
