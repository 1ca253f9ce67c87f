"""What a server offers: flows, their versions, services, projects and schedules."""

from __future__ import annotations

from dataclasses import dataclass, field

from .asking import Ask, JobSettings
from .names import Json


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
    """One fire time of a schedule and what came of it. ``outcome`` is started, skipped or failed."""

    schedule: str
    at: float
    fired_at: float
    outcome: str
    message: str = ""
    run: str | None = None
    late: bool = False
    missed: int = 0
