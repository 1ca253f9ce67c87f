"""Who works: workers, the machines that were asked for, and what lets them in."""

from __future__ import annotations

from dataclasses import dataclass, field

from .names import Json


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
    into the scheduler's queue; ``expires_at`` ends its token. ``profile_digest`` is that of the profile it
    was submitted with.
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
    profile_digest: str = ""


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
