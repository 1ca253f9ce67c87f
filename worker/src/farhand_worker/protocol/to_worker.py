"""What the server says to an agent, and what such a message is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Dict, List, Optional


@dataclass(frozen=True)
class Welcome:
    """The session stands. ``resume`` has one `Resume` (as a dict) for every job in ``Hello.held``.

    ``labels`` are those of the token: what this worker may be. ``limits`` may hold ``engine_memory_bytes``
    (an engine that is larger after a job is not kept), ``spool_bytes``, and ``import_s`` (so long an engine
    may import the module of a job that has a time limit). ``blobs`` has the ``directory``
    of the server's blobs, and the ``nonce`` in the file ``probe`` there: a worker that reads it sees them.
    ``several`` says that the server reads `Several`.
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
    several: bool = False


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
    ``behind``: it shares a slot, the one that was taken under this lease, with those that were handed over
    for it before, and begins after them. It waits no longer than ``behind_s`` for any of these to end.
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
    behind: Optional[int] = None


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
class Recall:
    """Give a job back that waits behind another. Nothing follows for one that has begun."""

    type: ClassVar[str] = "recall"
    job: str
    lease: int


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
    """A call this job placed has ended. The same body as a `Checkpoint` event.

    ``seen`` is told beside the server: the size, the time of the last change (ns) and the number of the
    value's file, when the server had verified it. While it has these, it is what it was then.
    """

    type: ClassVar[str] = "outcome"
    job: str
    lease: int
    key: str
    body: Dict[str, Any]
    seen: Optional[List[int]] = None


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
