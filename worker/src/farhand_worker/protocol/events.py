"""The kinds of events: what is reported of a job, and by what it ends.

A Value is {"enc": "json" | "pickle", "text": …} or, over INLINE_BYTES_MAX, {"enc": …, "digest":
"sha256:…", "size": bytes, "front"?}. JSON text is canonical; a pickle's text is base64 of protocol 5 and is
never opened by the server. An Error is {"type", "module", "message", "traceback", "pickle"?}.

``nested`` is the key of the innermost call of a flow that an event comes from; none for what belongs to no
flow but the run's own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Dict, List, Optional, Type


@dataclass(frozen=True)
class Started:
    """User code begins. Comes again with ``name``, what the run is called, once its parameters are known.

    ``importing``: its module has yet to be imported, which is not a part of what its limits allow; it comes
    again once that is done. ``environment`` is the digest of the distributions that the engine could import
    when it was started.
    """

    kind: ClassVar[str] = "started"
    at: float
    pid: int
    python: str
    host: str = ""
    name: Optional[str] = None
    environment: str = ""
    importing: bool = False


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
class Yielded:
    """What the call ``key`` yields into its stream ``name``, for those who read along.

    ``step`` is begun (what was yielded before is void), value, ended, or broken for what ``message`` says.
    """

    kind: ClassVar[str] = "yielded"
    key: str
    name: str
    step: str
    value: Optional[Dict[str, Any]] = None
    message: str = ""


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
    """The job waits for placed calls alone, or for what others yield: its wait number ``n``.

    It needs no slot until it is unblocked.
    """

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

    ``reason``: crashed, timeout, silence, cancelled, stopped, not_started, or returned (it waited behind
    another and had not begun). ``tail`` is the end of a service's output.
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
        Yielded,
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

URGENT = FINAL | {Call.kind, Blocked.kind, Unblocked.kind, Yielded.kind, ServiceState.kind}
"""The kinds that somebody waits for, and acts on."""
