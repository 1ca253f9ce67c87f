"""The wire protocol between a farhand server and a worker's agent. This file is the contract.

The order of a session
----------------------
1.  The agent opens ``WS /api/v1/workers/attach`` with its token in the ``Authorization`` header and
    sends `Hello`: who it is, what it may be, and every job it still holds.
2.  The server answers `Welcome` (its times, the digest of the runtime, and for every held job either
    the last event numbers it has recorded or the news that the job is fenced) or `Refused`. A final
    refusal is one that no retry changes; the agent then ends.
3.  The agent resends what the server has not recorded, then goes on. It beats with `Heartbeat` every
    ``heartbeat_s``; each is answered at once by an `Ack` with the same number. An answered heartbeat
    is evidence dated by when it was *sent*: engines may run until ``evidence + lease_s``.
4.  `Assign` hands over one attempt of a job, with its lease. The agent answers `Accepted`, or with
    the first `Event` of that lease, within ``handoff_s`` or the server closes the session. A `Cancel`
    never overtakes its `Assign`.
5.  Reports travel in `Event` frames, numbered from 1 per (job, lease, source). The server answers
    `Ack` only after the commit that holds them. What is recorded already is acknowledged whatever
    the lease is now; anything else under a lease that is not current is answered by `Fenced`, and
    the agent ends that engine.
6.  An attempt ends with exactly one final event: `Result` from the engine, or `Exit` from the agent
    when the engine ended without one. Log lines written before the end are sent before it.
7.  `Request` and `Reply` fetch what a job needs (kept outcomes, secrets, variables). `Outcome` brings
    the end of a call that the job placed elsewhere; it may come more than once and is known by its key.
8.  `Set` changes the number of slots, or has the worker take nothing new (or take work again). One that
    takes nothing new and holds nothing any more says `Drained`, once. `Probe` asks for a heartbeat at once.
9.  `Tunnel` asks for a connection to a service that this worker keeps, for whoever uses it through the
    server. The agent dials the same address once more, with the tunnel's ``id`` in the header
    ``farhand-tunnel``; what the service says goes there in binary frames, and what comes goes to the
    service, until either end closes. `NoTunnel` says why there is none.
10. `Bye` is an orderly end: the worker is offline at once. Whatever it still held is queued again.

A dropped socket ends none of this: the agent keeps its engines, reconnects and starts again at 1.

Frames are JSON texts, one message each, with a ``type`` from `MESSAGES`. Unknown fields are ignored;
an unknown type or a missing field is the peer's fault and raises `ProtocolViolation`. Bodies over
``INLINE_BYTES_MAX`` travel by HTTP under their digest, before the event that names them.

Times are seconds. Moments (``*_at``, ``at``) are seconds since the epoch, UTC.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Callable, ClassVar, Dict, List, Optional, Type

VERSION = 1
"""The version this code speaks best."""

SUPPORTED = (1, 1)
"""The lowest and the highest version this code speaks."""

FRAME_BYTES_MAX = 1024 * 1024 + 64 * 1024
"""No frame is larger; a larger one closes the session."""

INLINE_BYTES_MAX = 64 * 1024
"""A value whose encoded text is larger becomes a blob."""

BATCH_BYTES = 64 * 1024
"""An agent closes a batch of events at this size (one event may be larger)."""

SPOOL_BYTES_MAX = 256 * 1024 * 1024
"""Unacknowledged bytes a job may hold; beyond them log lines are dropped and counted."""

ENGINE = "engine"
AGENT = "agent"

IMPORT = "import"
"""The kind of a job that only asks whether a module can be imported; it takes no slot."""

SERVICE = "service"
"""The kind of a job that is a server process, kept until it is told to stop; it takes no slot."""

ENGINE_ID_VARIABLE = "FARHAND_ENGINE"
"""The one variable of farhand's own in an engine's environment; its descendants inherit it."""

TUNNEL_HEADER = "farhand-tunnel"
"""In the handshake of a connection that is no session: the id of the `Tunnel` that asked for it."""

TUNNEL_BYTES = 32 * 1024
"""So much goes in one frame of a tunnel."""

CUDA_MASK = "CUDA_VISIBLE_DEVICES"
"""The variable that says which GPUs a process sees."""


class ProtocolViolation(Exception):
    """The peer sent something that is not in this protocol."""

    code = "protocol_violation"


@dataclass(frozen=True)
class Times:
    """The clockwork both sides share; the server's settings, sent in `Welcome`."""

    heartbeat_s: float = 3.0
    lease_s: float = 15.0
    margin_s: float = 3.0
    reattach_s: float = 60.0
    outage_s: float = 600.0
    handoff_s: float = 5.0
    grace_s: float = 10.0
    lost_s: float = 5.0

    def scaled(self, factor: float) -> Times:
        """The same clockwork, faster (factor < 1); fault tests run at a tenth."""
        return Times(**{f.name: getattr(self, f.name) * factor for f in fields(self)})


@dataclass(frozen=True)
class Held:
    """A job an agent still answers for. ``ended`` means only its spool is left to send.

    ``rode_outage``: it ran on past its lease because connections were refused, as by a dead server. A
    firewall that refuses looks the same, so the server marks the attempt: another may have overlapped.
    """

    job: str
    lease: int
    started_at: Optional[float] = None
    ended: bool = False
    rode_outage: bool = False


@dataclass(frozen=True)
class Inventory:
    """What a worker's machine has to lend; None is unknown, which refuses nothing.

    ``devices`` are the names of its GPUs for the masks of engines, ``gpus`` of them: opaque strings (an
    index, the uuid of a GPU or of a part of one) from the mask the agent itself was given.
    """

    cpus: Optional[int] = None
    gpus: Optional[int] = None
    ram_mb: Optional[int] = None
    devices: Optional[List[str]] = None


# ---------------------------------------------------------------- agent → server


@dataclass(frozen=True)
class Hello:
    """Who dials. ``swept`` names the instance that this one has proved gone from its state directory.

    ``inventory`` is an `Inventory` as a dict. ``status_url`` is where its own status page is, as seen from
    its machine; ``service_host`` the name by which others reach the services it keeps; ``shared_paths`` the
    directories that lie on the same storage as the server's under the same path. ``checkout`` is the
    directory with its own copy of the code that it works in, at ``git``; ``environment`` the digest of what
    is installed there, once that is known; ``ends_at`` when its machine is taken away, where that is known.
    ``hosts`` says that it can keep services, ``tunnels`` that it dials again for whoever uses those.
    """

    type: ClassVar[str] = "hello"
    protocol: List[int]
    version: str
    name: str
    instance: str
    boot_id: str
    host: str
    python: str
    parallel: int
    labels: Optional[List[str]] = None
    held: List[Dict[str, Any]] = field(default_factory=list)
    swept: Optional[str] = None
    session_key: Optional[str] = None
    incarnation: Optional[str] = None
    draining: bool = False
    inventory: Optional[Dict[str, Any]] = None
    status_url: Optional[str] = None
    service_host: Optional[str] = None
    shared_paths: List[str] = field(default_factory=list)
    checkout: Optional[str] = None
    git: str = ""
    environment: str = ""
    ends_at: Optional[float] = None
    hosts: bool = False
    tunnels: bool = False


@dataclass(frozen=True)
class Heartbeat:
    """The agent is there.

    ``at`` is its wall clock when it sent this, to show how far off that is. ``behind`` names the jobs of
    which something waits to be recorded: their silence proves nothing.
    """

    type: ClassVar[str] = "heartbeat"
    n: int
    at: Optional[float] = None
    behind: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class Accepted:
    """The agent holds the job; ``started_at`` is set when user code has already begun."""

    type: ClassVar[str] = "accepted"
    job: str
    lease: int
    started_at: Optional[float] = None


@dataclass(frozen=True)
class Event:
    """A batch of reports: ``events[i]`` has the number ``first + i`` and is ``[kind, body, digests?]``."""

    type: ClassVar[str] = "event"
    job: str
    lease: int
    source: str
    first: int
    events: List[List[Any]]


@dataclass(frozen=True)
class Request:
    """Asks for something a job needs.

    Kind ``checkpoints``: ``args = {"after": n}``. Kinds ``secret`` and ``variable``: ``args = {"name": …}``,
    answered by ``{"value": …}``; a secret only where the job's flow or task declares it.
    """

    type: ClassVar[str] = "request"
    id: str
    job: str
    lease: int
    kind: str
    args: Dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Drained:
    """The worker takes nothing new and holds nothing any more, not even a report."""

    type: ClassVar[str] = "drained"


@dataclass(frozen=True)
class Changed:
    """What is around the worker is another than before: what is installed, or what is checked out.

    ``environment`` is the new digest; ``installed`` says what was added, removed or is of another version, as
    far as that is known. ``differs`` has, for every fingerprint that it was asked to compare,
    the files that differ (none: the checkout has that code), up to 20 of them; ``git`` is branch and commit.
    """

    type: ClassVar[str] = "changed"
    environment: Optional[str] = None
    installed: Optional[List[str]] = None
    git: Optional[str] = None
    differs: Optional[Dict[str, List[str]]] = None


@dataclass(frozen=True)
class NoTunnel:
    """The `Tunnel` with this id is not dialled, and why."""

    type: ClassVar[str] = "no_tunnel"
    id: str
    message: str


@dataclass(frozen=True)
class Bye:
    type: ClassVar[str] = "bye"
    reason: str


# ---------------------------------------------------------------- server → agent


@dataclass(frozen=True)
class Welcome:
    """The session stands. ``resume`` has one `Resume` (as a dict) for every job in ``Hello.held``.

    ``labels`` are those of the token: what this worker may be. ``limits`` may hold ``engine_memory_bytes``
    (an engine that is larger after a job is not kept) and ``spool_bytes``. ``blobs`` has the ``directory``
    of the server's blobs, and the ``nonce`` in the file ``probe`` there: a worker that reads it sees them.
    """

    type: ClassVar[str] = "welcome"
    name: str
    protocol: int
    incarnation: str
    times: Dict[str, float]
    runtime: str
    session_key: str
    resume: List[Dict[str, Any]] = field(default_factory=list)
    labels: List[str] = field(default_factory=list)
    limits: Dict[str, int] = field(default_factory=dict)
    blobs: Optional[Dict[str, str]] = None


@dataclass(frozen=True)
class Resume:
    """What the server has of a held job: the last number recorded per source, and whether to go on."""

    job: str
    lease: int
    recorded: Dict[str, int]
    fenced: bool = False
    cancelling: bool = False


@dataclass(frozen=True)
class Refused:
    type: ClassVar[str] = "refused"
    code: str
    message: str
    final: bool = False


@dataclass(frozen=True)
class Assign:
    """One attempt of a job.

    ``kind`` is ``run`` (``args`` encodes the parameters, a JSON object), ``call`` (``args`` encodes
    ``[positional, named]`` and ``key`` is the call's checkpoint key, the scope of what it calls) or
    ``hook`` (``args`` encodes the summary of a run that has ended, ``key`` is ``hook:STATE:INDEX``: the
    flow's hook of that state and place). ``entry`` is ``module:name`` inside the bundle. ``kept`` counts
    outcomes of earlier attempts; when it is not zero the engine asks for them before it starts.
    Kind ``import`` asks whether the module of ``entry`` can be imported there; it has no run. The ``args`` of
    a ``service`` are its `Hosting` as a dict; it has no entry, and ``run`` only names where its lines go.
    ``fingerprint`` is the digest of the manifest of the flow's files.
    ``settings`` may hold ``silence_timeout_s``, ``timeout_words`` and ``silence_words`` (what an `Exit` for
    that reason says, where the general words are not meant), ``isolated`` (an engine of its own), ``secrets``
    (an engine is only shared by jobs that declare the same); ``called``, key → run id of the flows that an
    earlier attempt had called and that have not ended; and, for a job that belongs to a flow called inside of
    the run, ``nested``: the ``key``, ``flow`` and run ``id`` of that call.

    ``cpus`` is how many cores the job was given, which its libraries are told before the engine starts.
    ``devices`` are the GPUs that the engine is to see, by their names in the worker's `Inventory`; none when
    empty, those that the agent sees itself when None.
    """

    type: ClassVar[str] = "assign"
    job: str
    lease: int
    attempt: int
    kind: str
    run: str
    flow: str
    entry: str
    args: Dict[str, Any]
    bundle: str
    key: str = ""
    timeout_s: Optional[float] = None
    strict: bool = False
    kept: int = 0
    settings: Dict[str, Any] = field(default_factory=dict)
    fingerprint: str = ""
    cpus: Optional[int] = None
    devices: Optional[List[str]] = None


@dataclass(frozen=True)
class Hosting:
    """How a service is run: the ``args`` of its job.

    ``{port}``, ``{weights}`` and ``{code}`` are replaced inside of ``command`` and of the values of ``env``;
    no shell sees either. Without a ``port`` the agent takes a free one; without ``health`` it is healthy once
    its own processes listen there. ``weights`` is the digest of a file that is fetched first.
    """

    name: str
    command: List[str]
    port: Optional[int] = None
    health: Optional[str] = "/health"
    env: Dict[str, str] = field(default_factory=dict)
    weights: str = ""
    stop_s: float = 3.0
    start_s: float = 600.0
    health_timeout_s: float = 3.0


@dataclass(frozen=True)
class Compare:
    """Asks a worker with a checkout which of these it has, in place of those it was asked for before.

    Their manifests are blobs of these digests.
    """

    type: ClassVar[str] = "compare"
    fingerprints: List[str]


@dataclass(frozen=True)
class Cancel:
    type: ClassVar[str] = "cancel"
    job: str
    lease: int
    reason: str = "cancelled"


@dataclass(frozen=True)
class Ack:
    """Answers a heartbeat (``n``) or a batch (``job``, ``lease``, ``source``, ``seq``: recorded so far)."""

    type: ClassVar[str] = "ack"
    n: Optional[int] = None
    job: Optional[str] = None
    lease: Optional[int] = None
    source: Optional[str] = None
    seq: Optional[int] = None


@dataclass(frozen=True)
class Reply:
    type: ClassVar[str] = "reply"
    id: str
    job: str
    lease: int
    body: Optional[Dict[str, Any]] = None
    error: Optional[str] = None
    code: Optional[str] = None


@dataclass(frozen=True)
class Outcome:
    """A call this job placed has ended. The same body as a `Checkpoint` event."""

    type: ClassVar[str] = "outcome"
    job: str
    lease: int
    key: str
    body: Dict[str, Any]


@dataclass(frozen=True)
class Proceed:
    """A job that was blocked has its slot again, after its wait number ``n``. It may come more than once."""

    type: ClassVar[str] = "proceed"
    job: str
    lease: int
    n: int


@dataclass(frozen=True)
class Fenced:
    """The lease is not current; nothing more is believed under it. The agent ends the engine.

    ``code`` names the error: ``stale_lease``, or what the server ended it for (``timeout``, ``silence``).
    """

    type: ClassVar[str] = "fenced"
    job: str
    lease: int
    reason: str
    code: str = ""


@dataclass(frozen=True)
class Set:
    """A person's order: so many slots; take nothing new (``draining``), or take work again."""

    type: ClassVar[str] = "set"
    parallel: Optional[int] = None
    draining: Optional[bool] = None


@dataclass(frozen=True)
class Probe:
    """Somebody else wants the name: beat at once, whoever is there."""

    type: ClassVar[str] = "probe"


@dataclass(frozen=True)
class Tunnel:
    """Dial once more, and carry a connection to the service that is held under this lease."""

    type: ClassVar[str] = "tunnel"
    id: str
    job: str
    lease: int


MESSAGES: Dict[str, Type[Any]] = {
    cls.type: cls
    for cls in (
        Hello,
        Heartbeat,
        Accepted,
        Event,
        Request,
        Drained,
        Bye,
        Changed,
        Compare,
        Welcome,
        Refused,
        Assign,
        Cancel,
        Ack,
        Reply,
        Outcome,
        Proceed,
        Fenced,
        Set,
        Probe,
        Tunnel,
        NoTunnel,
    )
}


# ---------------------------------------------------------------- event kinds
#
# A Value is {"enc": "json" | "pickle", "text": …} or, over INLINE_BYTES_MAX, {"enc": …, "digest":
# "sha256:…", "size": bytes}. JSON text is canonical; a pickle's text is base64 of protocol 5 and is
# never opened by the server. An Error is {"type", "module", "message", "traceback", "pickle"?}.
#
# ``nested`` is the key of the innermost call of a flow that an event comes from; none for what belongs to no
# flow but the run's own.


@dataclass(frozen=True)
class Started:
    """User code begins. Comes again with ``name``, what the run is called, once its parameters are known.

    ``environment`` is the digest of the distributions that the engine could import when it was started.
    """

    kind: ClassVar[str] = "started"
    at: float
    pid: int
    python: str
    host: str = ""
    name: Optional[str] = None
    environment: str = ""


@dataclass(frozen=True)
class Log:
    """One line. ``stream`` is stdout, stderr or log; ``task`` is the key of the call that wrote it."""

    kind: ClassVar[str] = "log"
    at: float
    text: str
    stream: str = "stdout"
    level: str = "info"
    task: Optional[str] = None
    nested: Optional[str] = None


@dataclass(frozen=True)
class Metric:
    """A point of one or more numeric series."""

    kind: ClassVar[str] = "metric"
    at: float
    values: Dict[str, float]
    task: Optional[str] = None
    nested: Optional[str] = None


@dataclass(frozen=True)
class Progress:
    """How far the run, or a call of it, has come: ``done`` of ``total``, where there is one."""

    kind: ClassVar[str] = "progress"
    at: float
    done: float
    total: Optional[float] = None
    message: Optional[str] = None
    task: Optional[str] = None
    nested: Optional[str] = None


@dataclass(frozen=True)
class TaskBegan:
    """A task call began in this engine. ``index`` is its place in a ``.map()``.

    ``needs`` are the keys of the calls whose results it takes or waits for; at most a thousand. ``flow`` is
    given for the call of a flow, which has a run of its own: ``id`` (the run's, unless it is taken), ``name``
    and ``entry`` of the flow, ``params``, ``run_name``, and ``hooks`` and ``secrets`` as in its settings.
    """

    kind: ClassVar[str] = "task"
    key: str
    name: str
    at: float
    scope: str = ""
    index: Optional[int] = None
    needs: Optional[List[str]] = None
    tags: Optional[List[str]] = None
    nested: Optional[str] = None
    flow: Optional[Dict[str, Any]] = None


@dataclass(frozen=True)
class Checkpoint:
    """A task call ended. ``kept`` is false when the outcome cannot be replayed.

    ``state`` is completed, failed, cancelled, crashed, or skipped: a node of a declared flow that was not
    run, for what ``error`` says.

    ``flow`` is given for the call of a flow: its run ends with it, for this ``reason`` and ``message``.
    """

    kind: ClassVar[str] = "checkpoint"
    key: str
    name: str
    state: str
    started_at: float
    ended_at: float
    scope: str = ""
    index: Optional[int] = None
    attempts: int = 1
    kept: bool = True
    value: Optional[Dict[str, Any]] = None
    error: Optional[Dict[str, Any]] = None
    nested: Optional[str] = None
    flow: Optional[Dict[str, Any]] = None


@dataclass(frozen=True)
class Call:
    """A placed call: a job of its own, on a machine that fits ``ask``. ``flow`` as in `TaskBegan`."""

    kind: ClassVar[str] = "call"
    key: str
    name: str
    entry: str
    args: Dict[str, Any]
    ask: Dict[str, Any]
    at: float
    scope: str = ""
    index: Optional[int] = None
    settings: Dict[str, Any] = field(default_factory=dict)
    needs: Optional[List[str]] = None
    tags: Optional[List[str]] = None
    nested: Optional[str] = None
    flow: Optional[Dict[str, Any]] = None


@dataclass(frozen=True)
class Blocked:
    """The job waits for placed calls alone, its wait number ``n``: it needs no slot until it is unblocked."""

    kind: ClassVar[str] = "blocked"
    at: float
    n: int


@dataclass(frozen=True)
class Unblocked:
    """It has what it waited for, and goes on when a `Proceed` with the same ``n`` comes."""

    kind: ClassVar[str] = "unblocked"
    at: float
    n: int


@dataclass(frozen=True)
class LocalPath:
    """A path in the job's arguments or its value lies outside every directory shared with the server."""

    kind: ClassVar[str] = "local_path"
    at: float
    path: str


@dataclass(frozen=True)
class Artifact:
    """A file saved by the job; its content has arrived before this event."""

    kind: ClassVar[str] = "artifact"
    name: str
    digest: str
    size: int
    at: float
    media_type: str = "application/octet-stream"
    task: Optional[str] = None
    nested: Optional[str] = None


@dataclass(frozen=True)
class ServiceState:
    """How a service is, from its agent: ``state`` is healthy or degraded.

    ``port`` is where its own processes listen, None while they do not. ``reason`` of degraded: starting,
    health_timeout, health_refused, health_status or port_taken.
    """

    kind: ClassVar[str] = "service"
    at: float
    state: str
    reason: str = ""
    message: str = ""
    port: Optional[int] = None


@dataclass(frozen=True)
class Result:
    """How user code ended: ``state`` is completed, failed or cancelled.

    Or ``unfit``: it could not begin on this machine, by reason ``code_missing`` (the module cannot be
    imported) or ``arguments_do_not_load``, and another may do better.

    ``retryable`` is false for a failure that the flow's ``retry_on`` does not name.
    """

    kind: ClassVar[str] = "result"
    state: str
    at: float
    reason: str = ""
    message: str = ""
    value: Optional[Dict[str, Any]] = None
    error: Optional[Dict[str, Any]] = None
    retryable: bool = True


@dataclass(frozen=True)
class Exit:
    """The engine ended without a result, or a service ended.

    ``reason``: crashed, timeout, silence, cancelled, stopped, not_started. ``tail`` is the end of a service's
    output.
    """

    kind: ClassVar[str] = "exit"
    at: float
    reason: str
    message: str
    code: Optional[int] = None
    signal: Optional[int] = None
    tail: str = ""


EVENTS: Dict[str, Type[Any]] = {
    cls.kind: cls
    for cls in (
        Started,
        Log,
        Metric,
        Progress,
        TaskBegan,
        Checkpoint,
        Call,
        Blocked,
        Unblocked,
        Artifact,
        LocalPath,
        ServiceState,
        Result,
        Exit,
    )
}

FINAL = frozenset({Result.kind, Exit.kind})
"""The kinds that end an attempt."""


# ---------------------------------------------------------------- codec


dumps: Callable[[Any], str] = json.JSONEncoder(separators=(",", ":")).encode
"""Compact JSON text, ASCII only, so that lone surrogates survive as escapes."""


def encode(message: Any) -> str:
    """One message as the text of one frame."""
    body = {name: getattr(message, name) for name in _FIELDS[message.type]}
    body["type"] = message.type
    return dumps(body)


def encode_events(job: str, lease: int, source: str, first: int, lines: List[str]) -> str:
    """An `Event` frame out of spool lines, which are JSON texts already and are not parsed again."""
    head = dumps({"type": Event.type, "job": job, "lease": lease, "source": source, "first": first})
    return head[:-1] + ',"events":[' + ",".join(lines) + "]}"


def decode(text: str) -> Any:
    """The message in a frame. Raises `ProtocolViolation` when it is none of ours."""
    try:
        body = json.loads(text)
        cls = MESSAGES[body["type"]]
        return cls(**{name: body[name] for name in _FIELDS[cls.type] if name in body})
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ProtocolViolation(f"not a message of this protocol: {text[:80]!r} ({error})") from error


def as_dict(record: Any) -> Dict[str, Any]:
    """The fields of a `Held`, `Resume`, `Times` or event body, ready for JSON."""
    return asdict(record)


_FIELDS: Dict[str, List[str]] = {name: [f.name for f in fields(cls)] for name, cls in MESSAGES.items()}
